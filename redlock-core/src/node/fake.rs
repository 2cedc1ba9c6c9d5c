//! A node that does what a test tells it to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::{
    Action, Capabilities, Node, NodeStatus, Notify, Op, Reply, ReplyFuture, Silence,
    StatusReceiver, StatusSender, Subscription,
};
use crate::error::{NodeError, Vote};
use crate::lock::LockSpec;

/// Executes what it is asked in order, as a server does with what comes over one connection.
pub(crate) struct FakeNode {
    name: Arc<str>,
    questions: mpsc::UnboundedSender<(Question, oneshot::Sender<(Vote, i64)>)>,
    mode: watch::Sender<Mode>,
    store: Arc<Mutex<Store>>,
    status: StatusSender,
    /// Of all that have ever subscribed.
    subscribers: Mutex<Vec<Notify>>,
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
    /// Executes, and gives up waiting for its store.
    TimedOut,
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
                    Mode::TimedOut => Vote::Failed(NodeError::NoAnswer(Duration::from_millis(20))),
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
            status: StatusSender::new(NodeStatus::Up),
            subscribers: Mutex::default(),
            silence_is_known: AtomicBool::new(true),
            asks_when_looked_at: AtomicBool::new(false),
            asked: Mutex::default(),
        })
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
        self.status.send(match mode {
            Mode::Down => NodeStatus::Down(refused()),
            _ => NodeStatus::Up,
        });
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
        for notify in &*self.subscribers.lock() {
            notify();
        }
    }

    /// How many have ever listened to it.
    pub(crate) fn listeners(&self) -> usize {
        self.subscribers.lock().len()
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

    fn ask(&self, question: Question) -> ReplyFuture {
        let failed = |error| ReplyFuture::ready(Vote::Failed(error));
        let is_acquisition = matches!(question, Question::Acquire(..));
        match *self.mode.borrow() {
            Mode::Down => return failed(refused()),
            Mode::Broken => {
                let broke = NodeError::ConnectionBroke("reset".into());
                return ReplyFuture::new(async move { Vote::Failed(broke).into() });
            }
            Mode::Forbidden => return failed(NodeError::NotPermitted("SET".into())),
            Mode::OnProbation if is_acquisition => return ReplyFuture::ready(stepped()),
            _ => {}
        }
        let questions = self.questions.clone();
        ReplyFuture::new(async move {
            let (sender, answer) = oneshot::channel();
            let _ = questions.send((question, sender));
            let Ok((vote, number)) = answer.await else {
                return Vote::Failed(NodeError::ConnectionBroke("gone".into())).into();
            };
            let is_numbered = vote == Vote::Granted && is_acquisition;
            let reply = Reply::new(vote);
            if is_numbered { reply.with_number(number) } else { reply }
        })
    }
}

fn refused() -> NodeError {
    NodeError::NotConnected("refused".into())
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

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn call(&self, op: Op) -> ReplyFuture {
        let token = op.token.as_str().to_owned();
        self.ask(match op.action {
            Action::Acquire { lease, .. } => Question::Acquire(token, lease),
            Action::Extend { lease } => Question::Extend(token, lease),
            Action::Confirm { number } => Question::Confirm(token, number),
            Action::Release { .. } => Question::Release(token),
        })
    }

    /// Publishes nothing by itself, see `announce`. Is subscribed as soon as it could have answered.
    fn subscribe(&self, _: &Arc<LockSpec>, notify: Notify) -> Subscription {
        self.subscribers.lock().push(notify);
        let mut mode = self.mode.subscribe();
        Subscription::new(|| {}).ready_after(async move {
            let mode = mode.wait_for(|mode| *mode != Mode::Frozen).await.map(|mode| *mode);
            if let Ok(Mode::Up(delay)) = mode {
                sleep(delay).await;
            }
        })
    }

    fn status(&self) -> StatusReceiver {
        self.status.subscribe()
    }

    fn silence(&self, limit: Duration, waited: Duration) -> Silence {
        let mut known_for = waited;
        if self.asks_when_looked_at.load(Ordering::Relaxed) {
            known_for = self.asked.lock().get_or_insert_with(Instant::now).elapsed();
        }
        if known_for < limit {
            Silence::Unknown(limit.saturating_sub(known_for))
        } else if self.silence_is_known.load(Ordering::Relaxed) {
            Silence::Lasts(waited)
        } else {
            Silence::Unknown(limit)
        }
    }
}
