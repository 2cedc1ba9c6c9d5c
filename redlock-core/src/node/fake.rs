//! A node that does what a test tells it to.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::{Answer, Claim, Listening, LockName, Node, Notify, Ready, Silence};
use crate::error::{NodeError, Vote};

/// Executes what it is asked in order, as a server does with what comes over one connection.
pub(crate) struct FakeNode {
    name: Arc<str>,
    questions: mpsc::UnboundedSender<(Question, oneshot::Sender<(Vote, i64)>)>,
    mode: watch::Sender<Mode>,
    store: Arc<Mutex<Store>>,
    /// Of all that have ever listened.
    listeners: Mutex<Vec<Notify>>,
    /// Whether it is known to be silent when it does not answer.
    silence_is_known: AtomicBool,
    /// Whether it does not know that it owes an answer, and asks its store when a caller looks.
    asks_when_looked_at: AtomicBool,
    asked: Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Answers after a while.
    Up(Duration),
    /// Takes questions and does nothing until it is up again.
    Frozen,
    /// Is not asked at all.
    Down,
    /// Executes, but the connection breaks before the answer.
    AnswerLost,
    /// Sets the lock, and answers something that is not understood.
    NotUnderstood,
    /// Executes, but what it grants does not count.
    Stepped,
    /// Is not asked to set a lock.
    OnProbation,
    /// Has just been lost, and is asked nevertheless: that fails at once.
    Broken,
    /// Refuses every question, because the user lacks a right.
    Forbidden,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Acquire(String, Duration),
    Extend(String, Duration),
    Release(String),
    Confirm(String, i64),
}

#[derive(Debug, Default)]
struct Store {
    /// The token that holds the only lock, and until when.
    holder: Option<(String, Instant)>,
    log: Vec<Question>,
    /// The fencing counter.
    counter: i64,
    /// Whether a question has been taken.
    busy: bool,
}

impl Store {
    fn execute(&mut self, question: &Question) -> Vote {
        self.log.push(question.clone());
        let now = Instant::now();
        self.holder.take_if(|(_, until)| *until <= now);
        let holder = self.holder.as_ref().map(|(token, until)| (token.as_str(), *until - now));
        match (question, holder) {
            (Question::Acquire(token, expire), None) => {
                self.holder = Some((token.clone(), now + *expire));
                self.counter += 1;
                Vote::Granted
            }
            (Question::Acquire(..), Some((_, remaining))) => {
                Vote::Held { remaining: Some(remaining) }
            }
            (Question::Extend(token, expire), Some((own, remaining))) if own == token => {
                self.holder = Some((token.clone(), now + remaining.max(*expire)));
                Vote::Granted
            }
            (Question::Release(token), Some((own, _))) if own == token => {
                self.holder = None;
                Vote::Granted
            }
            (Question::Confirm(token, number), Some((own, _))) if own == token => {
                self.counter = self.counter.max(*number);
                Vote::Granted
            }
            (Question::Extend(..) | Question::Release(_) | Question::Confirm(..), _) => Vote::Gone,
        }
    }
}

impl FakeNode {
    pub(crate) fn start(name: &str) -> Arc<Self> {
        redlock_logs::watch();
        let (questions, mut inbox) =
            mpsc::unbounded_channel::<(Question, oneshot::Sender<(Vote, i64)>)>();
        let (mode, mut changes) = watch::channel(Mode::Up(Duration::ZERO));
        let store = Arc::new(Mutex::new(Store::default()));
        let executed = Arc::clone(&store);
        tokio::spawn(async move {
            while let Some((question, answer)) = inbox.recv().await {
                let not_frozen = |mode: &Mode| *mode != Mode::Frozen;
                let Ok(mode) = changes.wait_for(not_frozen).await.map(|mode| *mode) else { return };
                executed.lock().busy = true;
                if let Mode::Up(delay) = mode
                    && !delay.is_zero()
                {
                    sleep(delay).await;
                }
                let (vote, number) = {
                    let mut store = executed.lock();
                    (store.execute(&question), store.counter)
                };
                let vote = match mode {
                    Mode::AnswerLost => Vote::Failed(NodeError::ConnectionBroke("reset".into())),
                    Mode::NotUnderstood if matches!(question, Question::Acquire(..)) => {
                        Vote::Failed(NodeError::NotUnderstood)
                    }
                    Mode::Stepped if matches!(question, Question::Acquire(..)) => stepped(),
                    _ => vote,
                };
                let _ = answer.send((vote, number));
            }
        });
        Arc::new(Self {
            name: name.into(),
            questions,
            mode,
            store,
            listeners: Mutex::default(),
            silence_is_known: AtomicBool::new(true),
            asks_when_looked_at: AtomicBool::new(false),
            asked: Mutex::default(),
        })
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Lets the node look as if this process were late in reading its answers.
    pub(crate) fn set_silence_is_known(&self, is_known: bool) {
        self.silence_is_known.store(is_known, Ordering::Relaxed);
    }

    /// Lets the node find out about its silence no sooner than somebody looks.
    pub(crate) fn ask_when_looked_at(&self) {
        self.asks_when_looked_at.store(true, Ordering::Relaxed);
    }

    /// Whether a lock stands on it.
    pub(crate) fn is_held(&self) -> bool {
        let now = Instant::now();
        self.store.lock().holder.as_ref().is_some_and(|(_, until)| *until > now)
    }

    /// Puts somebody else's lock on it.
    pub(crate) fn occupy(&self, expire: Duration) {
        self.store.lock().holder = Some(("other".to_owned(), Instant::now() + expire));
    }

    /// As if it had been restarted without its data.
    pub(crate) fn forget(&self) {
        self.store.lock().holder = None;
    }

    /// Tells all who listen that the lock was released.
    pub(crate) fn announce(&self) {
        for notify in &*self.listeners.lock() {
            notify();
        }
    }

    /// How many have ever listened to it.
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.lock().len()
    }

    /// Lets the fencing counter stand somewhere.
    pub(crate) fn set_counter(&self, count: i64) {
        self.store.lock().counter = count;
    }

    /// Whether a question has been taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.store.lock().busy
    }

    /// What it has executed.
    pub(crate) fn log(&self) -> Vec<Question> {
        self.store.lock().log.clone()
    }

    /// How many releases it has executed.
    pub(crate) fn releases(&self) -> usize {
        self.log().iter().filter(|question| matches!(question, Question::Release(_))).count()
    }

    fn ask(&self, claim: &Arc<Claim>, question: Question) -> Answer {
        if *self.mode.borrow() == Mode::Down {
            return Answer::Ready(Vote::Failed(NodeError::NotConnected("refused".into())));
        }
        if *self.mode.borrow() == Mode::Broken {
            let failed = Vote::Failed(NodeError::ConnectionBroke("reset".into()));
            return Answer::pending(async move { failed });
        }
        if *self.mode.borrow() == Mode::Forbidden {
            return Answer::Ready(Vote::Failed(NodeError::NotPermitted("SET".into())));
        }
        let (questions, claim) = (self.questions.clone(), Arc::clone(claim));
        let is_acquisition = matches!(question, Question::Acquire(..));
        if is_acquisition && *self.mode.borrow() == Mode::OnProbation {
            return Answer::Ready(stepped());
        }
        Answer::pending(async move {
            let (sender, answer) = oneshot::channel();
            let _ = questions.send((question, sender));
            let Ok((vote, number)) = answer.await else {
                return Vote::Failed(NodeError::ConnectionBroke("gone".into()));
            };
            if vote == Vote::Granted && is_acquisition {
                claim.note_number(number);
            }
            vote
        })
    }
}

fn stepped() -> Vote {
    let (by, votes_in) = (Duration::from_secs(60), Duration::from_secs(1));
    Vote::Failed(NodeError::ClockStepped { by, votes_in })
}

impl fmt::Debug for FakeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeNode").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node for FakeNode {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn acquire(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        self.ask(claim, Question::Acquire(claim.token().to_owned(), expire))
    }

    fn extend(&self, claim: &Arc<Claim>, expire: Duration) -> Answer {
        self.ask(claim, Question::Extend(claim.token().to_owned(), expire))
    }

    fn confirm(&self, claim: &Arc<Claim>, number: i64) -> Answer {
        self.ask(claim, Question::Confirm(claim.token().to_owned(), number))
    }

    fn release(&self, claim: &Arc<Claim>) -> Answer {
        self.ask(claim, Question::Release(claim.token().to_owned()))
    }

    /// Announces nothing by itself, see `announce`. Listens as soon as it could have answered.
    fn listen(&self, _: &LockName, notify: Notify) -> (Listening, Ready) {
        self.listeners.lock().push(notify);
        let mut mode = self.mode.subscribe();
        let ready = async move {
            let mode = mode.wait_for(|mode| *mode != Mode::Frozen).await.map(|mode| *mode);
            if let Ok(Mode::Up(delay)) = mode {
                sleep(delay).await;
            }
        };
        (Listening::new(|| {}), Box::pin(ready))
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        let mut known_for = waited;
        if self.asks_when_looked_at.load(Ordering::Relaxed) {
            known_for = self.asked.lock().get_or_insert_with(Instant::now).elapsed();
        }
        if known_for < limit {
            Silence::Unknown(limit - known_for)
        } else if self.silence_is_known.load(Ordering::Relaxed) {
            Silence::Lasts(waited)
        } else {
            Silence::Unknown(limit)
        }
    }

    fn is_cluster(&self) -> bool {
        false
    }

    fn is_up(&self) -> bool {
        *self.mode.borrow() != Mode::Down
    }

    fn recovered(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut mode = self.mode.subscribe();
        Box::pin(async move {
            let _ = mode.wait_for(|mode| *mode != Mode::Down).await;
        })
    }
}
