//! The plan of a run, which follows from a seed: the machines, their clocks, and the faults with their
//! times.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Dialect;

use super::leaders::Leadership;
use super::network::{Direction, Latency};
use super::server::{Memory, WallClock};
use super::sharing::Sharing;

/// A deliberate breach of the conditions under which the lock is safe. The simulation has to find the
/// violations that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weakness {
    None,
    /// Servers restart without their memory before the leases that they granted are over.
    ForgetfulServers,
    /// The servers' clocks run faster than the margin allows.
    FastClocks,
    /// The servers' clocks are stepped, and the servers vote at once.
    SteppedClocks,
    /// The servers' clocks are stepped silently (see [`Fault::StepClock`]), and the servers vote at once.
    SilentSteps,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Hold {
        client: usize,
        server: usize,
        direction: Direction,
    },
    Resume {
        client: usize,
        server: usize,
        direction: Direction,
    },
    Slow {
        client: usize,
        server: usize,
        direction: Direction,
    },
    NormalSpeed {
        client: usize,
        server: usize,
        direction: Direction,
    },
    Reset {
        client: usize,
        server: usize,
    },
    /// The existing connections deliver nothing. New connections work.
    Stall {
        client: usize,
        server: usize,
    },
    /// Stalled connections deliver again, including the packets in flight.
    Unstall {
        client: usize,
        server: usize,
    },
    /// The server loses its scripts, as after `SCRIPT FLUSH`.
    FlushScripts {
        server: usize,
    },
    Crash {
        server: usize,
    },
    Restart {
        server: usize,
        memory: Memory,
    },
    /// The server's wall clock is stepped by `by` milliseconds. `ends_connections`: the connections are
    /// reset at that moment, as on a machine that was asleep, so that every client reads the clock before
    /// the server votes again. A silent step ends no connection.
    StepClock {
        server: usize,
        by: i64,
        ends_connections: bool,
    },
    /// A client dies. Its connections are reset, or stay open for ever.
    Vanish {
        client: usize,
        ends_connections: bool,
    },
}

#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) servers: Vec<WallClock>,
    /// The drift of each client's clock, in millionths.
    pub(super) clients: Vec<i32>,
    pub(super) workers: usize,
    pub(super) keys: usize,
    pub(super) dialect: Dialect,
    pub(super) latency: Latency,
    pub(super) leases: Vec<Duration>,
    pub(super) restart_guard: bool,
    /// Whether the run checks the promises of the restart guard.
    pub(super) checks_guard: bool,
    /// The workers of a client begin their turns at the same moments, whole multiples of this time, so that
    /// many of their commands are in flight on one connection.
    pub(super) beat: Option<Duration>,
    /// The time in which no worker begins to ask for a lock.
    pub(super) idle: Option<Range<Duration>>,
    /// How the clients lead, if they do. The first worker of each client then leads, and the others are handlers.
    pub(super) leadership: Option<Leadership>,
    /// Whether an operator removes holders.
    pub(super) has_operator: bool,
    /// Whether the servers track keys. The hints let a holder set its lock again between two faults, so that weak rules are
    /// found without them.
    pub(super) tracks: bool,
    /// How the workers share locks, if they do.
    pub(super) sharing: Option<Sharing>,
    /// The longest time that a caller may wait although nothing fails; `None` if faults may delay it for longer. Some
    /// callers then wait without a limit.
    pub(super) longest_wait: Option<Duration>,
    /// The longest pause between two turns of a worker, in milliseconds.
    pub(super) longest_pause: u64,
    /// The longest time for which a worker holds a lock.
    pub(super) longest_hold: Duration,
    /// The time after which no worker begins a turn.
    pub(super) length: Duration,
    /// The faults and their times, in the order of the times.
    pub(super) faults: Vec<(Duration, Fault)>,
}

/// The latency of a slow route.
pub(super) const SLOW: Latency = 20..=90;

/// The time of silence after which a client has replaced a connection.
const LONGEST_SILENCE: Duration = Duration::from_millis(6500);

const DRIFT: RangeInclusive<i32> = -4000..=4000;
const LENGTH: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_millis(800);
/// The longest pause of a worker, in milliseconds.
pub(super) const LONGEST_PAUSE: u64 = 150;
/// One seed in this many is a [crowd](Plan::crowd), which takes as long as 25 other runs.
pub(super) const CROWDED: u64 = 37;
/// The number of workers of each client in a crowd.
const CROWD: RangeInclusive<usize> = 30..=40;
/// The pauses between the turns of a crowd, in milliseconds.
const BEAT: RangeInclusive<u64> = 40..=160;

impl Plan {
    pub(super) fn from_seed(seed: u64, weakness: Weakness) -> Self {
        if weakness == Weakness::None && seed.is_multiple_of(CROWDED) {
            return Self::crowd(seed);
        }
        Self::few_workers(seed, weakness)
    }

    fn few_workers(seed: u64, weakness: Weakness) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        if weakness == Weakness::None && random.random_ratio(1, 5) {
            return Self::silent_steps(seed, random.random_ratio(3, 4));
        }
        if weakness == Weakness::SilentSteps {
            return Self { checks_guard: true, ..Self::silent_steps(seed, false) };
        }
        let long_leases = random.random_ratio(1, 4);
        let leases: Vec<_> = if long_leases { 20_000..=20_000 } else { 150..=600 }
            .step_by(150)
            .map(Duration::from_millis)
            .collect();
        let forgets = match weakness {
            Weakness::None => !long_leases && random.random_ratio(1, 2),
            Weakness::ForgetfulServers => true,
            Weakness::FastClocks | Weakness::SteppedClocks | Weakness::SilentSteps => false,
        };
        let steps = match weakness {
            Weakness::None => !long_leases && !forgets && random.random_ratio(1, 2),
            other => other == Weakness::SteppedClocks,
        };
        let drift = |random: &mut SmallRng| match weakness {
            Weakness::FastClocks => 200_000,
            _ => drift_of_a_clock(random),
        };
        let servers = match random.random_range(0..6) {
            0 if weakness == Weakness::None => 1,
            0..4 => 3,
            _ => 5,
        };
        let dialect = any_dialect(&mut random);
        let sharing = Sharing::random(&mut random, dialect, servers);
        let servers = (0..servers)
            .map(|_| WallClock {
                drift: drift(&mut random),
                // A server that has forgotten its counter continues from its clock. Fencing numbers then
                // grow only if the clocks agree.
                ahead: if forgets { 0 } else { random.random_range(0..5000) },
            })
            .collect();
        let clients =
            (0..random.random_range(2..=4)).map(|_| drift_of_a_clock(&mut random)).collect();
        let mut plan = Self {
            seed,
            servers,
            clients,
            workers: random.random_range(1..=3),
            keys: random.random_range(1..=3),
            dialect,
            sharing,
            longest_wait: None,
            longest_pause: LONGEST_PAUSE,
            latency: 0..=random.random_range(1..=12),
            leases,
            restart_guard: weakness == Weakness::None
                && (steps || forgets && random.random_ratio(1, 2)),
            checks_guard: true,
            beat: None,
            idle: None,
            leadership: None,
            has_operator: false,
            tracks: true,
            longest_hold: LONGEST_HOLD,
            length: LENGTH,
            faults: Vec::new(),
        };
        plan.add_faults(&mut random, 100..=900, forgets, weakness);
        if steps {
            plan.add_steps(&mut random);
        }
        plan.sort();
        plan
    }

    /// Returns the plan of a seed, with many workers in each client that begin their turns together.
    pub(super) fn crowd(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        Self {
            workers: random.random_range(CROWD),
            keys: random.random_range(1..=*CROWD.end()),
            beat: Some(Duration::from_millis(random.random_range(BEAT))),
            ..Self::few_workers(seed, Weakness::None)
        }
    }

    /// Returns the plan of a seed with its faults, and with many readers that join the locks of others.
    pub(super) fn readers(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let writers = random.random_range(3..=25);
        Self {
            workers: random.random_range(4..=10),
            keys: random.random_range(1..=2),
            dialect: Dialect::Plain,
            sharing: Some(Sharing { writers, permits: false, changes_modes: true }),
            longest_pause: random.random_range(2..=30),
            latency: 0..=random.random_range(1..=6),
            longest_hold: Duration::from_millis(random.random_range(10..=400)),
            ..Self::few_workers(seed, Weakness::None)
        }
    }

    /// Returns the plan of a seed without its faults.
    pub(super) fn without_faults(seed: u64) -> Self {
        Self { faults: Vec::new(), ..Self::few_workers(seed, Weakness::FastClocks) }
            .with_steady_clocks()
    }

    fn with_steady_clocks(mut self) -> Self {
        self.servers.iter_mut().for_each(|clock| clock.drift = 0);
        self
    }

    pub(super) fn longest_lease(&self) -> Duration {
        self.leases.iter().max().copied().unwrap_or_default()
    }

    /// Returns whether the leases outlast the run. Then no lock may be left to expire: each must be
    /// released.
    pub(super) fn has_long_leases(&self) -> bool {
        self.longest_lease() > self.length
    }

    /// Returns whether workers leave some locks to expire.
    pub(super) fn keeps_locks(&self) -> bool {
        !self.has_long_leases() && self.longest_wait.is_none()
    }

    /// Adds random faults. `pauses` is the range of the longest pause between two faults, so that some runs
    /// have few faults and others many.
    pub(super) fn add_faults(
        &mut self,
        random: &mut SmallRng,
        pauses: RangeInclusive<u64>,
        forgets: bool,
        weakness: Weakness,
    ) {
        let mut up_again = vec![Duration::ZERO; self.servers.len()];
        let mut at = Duration::ZERO;
        let pause = random.random_range(pauses);
        loop {
            at += Duration::from_millis(random.random_range(0..=pause));
            if at > self.length {
                break;
            }
            let client = random.random_range(0..self.clients.len());
            let server = random.random_range(0..self.servers.len());
            let end = at + Duration::from_millis(random.random_range(5..=600));
            match random.random_range(0..100) {
                0..30 => self.hold(random, client, at, end),
                30..50 => {
                    let direction = any_direction(random);
                    self.add(at, Fault::Slow { client, server, direction });
                    self.add(end, Fault::NormalSpeed { client, server, direction });
                }
                50..65 => self.add(at, Fault::Reset { client, server }),
                65..72 => {
                    // Half of the stalls last until the client has replaced the connection.
                    let end = if random.random_ratio(1, 2) { end } else { end + LONGEST_SILENCE };
                    self.add(at, Fault::Stall { client, server });
                    self.add(end, Fault::Unstall { client, server });
                }
                72..75 => self.add(at, Fault::FlushScripts { server }),
                75..98 => {
                    if up_again[server] > at {
                        continue;
                    }
                    let memory = if forgets && random.random_ratio(2, 3) {
                        Memory::Lost
                    } else {
                        Memory::Kept
                    };
                    let may_come_at_once = memory == Memory::Kept
                        || self.restart_guard
                        || weakness == Weakness::ForgetfulServers;
                    let down = Duration::from_millis(random.random_range(1..=300));
                    let away =
                        if may_come_at_once { down } else { down + self.longest_lease() * 51 / 50 };
                    up_again[server] = at + away;
                    self.add(at, Fault::Crash { server });
                    self.add(at + away, Fault::Restart { server, memory });
                }
                _ if self.has_long_leases() => {}
                _ => {
                    let ends_connections = random.random_ratio(1, 2);
                    self.add(at, Fault::Vanish { client, ends_connections });
                }
            }
        }
    }

    /// Cuts a client off from some servers, in one direction or both.
    pub(super) fn hold(
        &mut self,
        random: &mut SmallRng,
        client: usize,
        at: Duration,
        end: Duration,
    ) {
        let both = random.random_ratio(1, 2);
        let direction = any_direction(random);
        for server in 0..self.servers.len() {
            if random.random_ratio(1, 2) {
                continue;
            }
            for each in [Direction::ToServer, Direction::ToClient] {
                if both || each == direction {
                    self.add(at, Fault::Hold { client, server, direction: each });
                    self.add(end, Fault::Resume { client, server, direction: each });
                }
            }
        }
    }

    pub(super) fn add(&mut self, at: Duration, fault: Fault) {
        self.faults.push((at, fault));
    }

    /// Sorts the faults by their times.
    pub(super) fn sort(&mut self) {
        self.faults.sort_by_key(|(at, _)| *at);
    }
}

/// Returns a random drift. Two thirds of the clocks drift as far as [`DRIFT`] allows.
pub(super) fn drift_of_a_clock(random: &mut SmallRng) -> i32 {
    match random.random_range(0..3) {
        0 => *DRIFT.start(),
        1 => *DRIFT.end(),
        _ => random.random_range(DRIFT),
    }
}

/// Returns a random dialect.
pub(super) fn any_dialect(random: &mut SmallRng) -> Dialect {
    if random.random_ratio(1, 4) { Dialect::Redisson } else { Dialect::Plain }
}

fn any_direction(random: &mut SmallRng) -> Direction {
    if random.random_ratio(1, 2) { Direction::ToServer } else { Direction::ToClient }
}
