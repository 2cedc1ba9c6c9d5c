//! The fair queue of one lock, which its waiters and its attendant share.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::machine::FairMachine;
use crate::error::NodeError;
use crate::node::{QueueReply, Subscription};

/// The fair queue of one lock, as long as this process has waiters there.
pub(crate) struct FairQueue {
    pub(super) machine: Mutex<FairMachine<NodeError>>,
    /// How often the position of this process has changed.
    pub(super) changed: watch::Sender<u64>,
    /// Wakes the attendant.
    pub(super) wake: Notify,
    /// Notified by the conductor when the first ticket may be one of this process.
    pub(super) message: Arc<Notify>,
    /// Set by the first waiter that has entered.
    pub(super) attendant: OnceLock<()>,
    /// Locked by the thread that does what the machine says.
    pub(super) tasks: Mutex<FairTasks>,
}

/// The operations that have begun and have not ended.
#[derive(Default)]
pub(super) struct FairTasks {
    /// The attendant takes it, and waits for its end.
    pub(super) operation: Option<FairTask<TaskEnd>>,
    /// As the operation.
    pub(super) probe: Option<FairTask<Option<usize>>>,
    pub(super) subscription: Option<Subscription>,
    /// Whether the attendant has ended, perhaps with its runtime.
    pub(super) has_ended: bool,
}

pub(super) type FairTask<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The end of an operation.
pub(super) enum TaskEnd {
    Replied(Result<QueueReply, NodeError>),
    Subscribed,
}

impl FairQueue {
    pub(super) fn new(nodes: usize, conductor: usize) -> Arc<Self> {
        Arc::new(Self {
            machine: Mutex::new(FairMachine::new(nodes, conductor, Instant::now())),
            changed: watch::Sender::new(0),
            wake: Notify::new(),
            message: Arc::default(),
            attendant: OnceLock::new(),
            tasks: Mutex::default(),
        })
    }

    /// Returns whether the first ticket of all is a ticket of this process.
    pub(crate) fn is_first(&self) -> bool {
        self.machine.lock().is_first()
    }
}

impl fmt::Debug for FairQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue").field("machine", &self.machine).finish_non_exhaustive()
    }
}
