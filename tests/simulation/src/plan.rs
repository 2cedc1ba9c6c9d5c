//! What a seed stands for: the machines, their clocks, and what goes wrong when.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Dialect;

use super::network::{Direction, Latency};
use super::server::{Memory, WallClock};

/// A protection that is switched off, to show that what it protects from is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weakness {
    None,
    /// Servers come back without their memory before the leases that they granted are over.
    ForgetfulServers,
    /// The servers' clocks run faster than the margin allows.
    FastClocks,
    /// The servers' clocks are stepped, and they go on voting.
    SteppedClocks,
    /// So they are, and nobody hears of it.
    UnheardSteps,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Hold {
        client: usize,
        server: usize,
        direction: Direction,
    },
    LetGo {
        client: usize,
        server: usize,
        direction: Direction,
    },
    Slow {
        client: usize,
        server: usize,
        direction: Direction,
    },
    AsFastAsBefore {
        client: usize,
        server: usize,
        direction: Direction,
    },
    Tear {
        client: usize,
        server: usize,
    },
    /// The connections that there are lead nowhere, while new ones do.
    Stall {
        client: usize,
        server: usize,
    },
    /// What was under way there gets through after all.
    Unstall {
        client: usize,
        server: usize,
    },
    /// Somebody makes the server forget its scripts.
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
    /// The wall clock is stepped by so many milliseconds. `noticed`: the connections end at that
    /// moment, as those of a machine that was asleep do, so that everybody looks at its clock before
    /// it votes again.
    StepClock {
        server: usize,
        by: i64,
        noticed: bool,
    },
    /// A client ends without a word, or at least with the end of its connections.
    Vanish {
        client: usize,
        ends_connections: bool,
    },
}

#[derive(Debug, Clone)]
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
    /// Whether it is checked what the restart guard promises.
    pub(super) promises_guard: bool,
    /// When nobody asks for a lock, or holds one.
    pub(super) idle: Option<Range<Duration>>,
    /// The longest time that a lock is worked under.
    pub(super) longest_hold: Duration,
    /// When the last work is begun.
    pub(super) length: Duration,
    /// In the order in which they happen.
    pub(super) faults: Vec<(Duration, Fault)>,
}

/// What a way that is slow takes.
pub(super) const SLOW: Latency = 20..=90;

/// After this time of silence a connection is replaced.
const GIVEN_UP: Duration = Duration::from_millis(6500);

const DRIFT: RangeInclusive<i32> = -4000..=4000;
const LENGTH: Duration = Duration::from_secs(2);
const LONGEST_HOLD: Duration = Duration::from_millis(800);

impl Plan {
    pub(super) fn from_seed(seed: u64, weakness: Weakness) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        if weakness == Weakness::None && random.random_ratio(1, 5) {
            return Self::unheard_steps(seed, random.random_ratio(3, 4));
        }
        if weakness == Weakness::UnheardSteps {
            return Self { promises_guard: true, ..Self::unheard_steps(seed, false) };
        }
        let long_leases = random.random_ratio(1, 4);
        let leases: Vec<_> = if long_leases { 20_000..=20_000 } else { 150..=600 }
            .step_by(150)
            .map(Duration::from_millis)
            .collect();
        let forgets = match weakness {
            Weakness::None => !long_leases && random.random_ratio(1, 2),
            Weakness::ForgetfulServers => true,
            Weakness::FastClocks | Weakness::SteppedClocks | Weakness::UnheardSteps => false,
        };
        let steps = match weakness {
            Weakness::None => !long_leases && !forgets && random.random_ratio(1, 2),
            other => other == Weakness::SteppedClocks,
        };
        let drift = |random: &mut SmallRng| match weakness {
            Weakness::FastClocks => 200_000,
            _ => drift_of_a_clock(random),
        };
        let servers = (0..if random.random_ratio(1, 3) { 5 } else { 3 })
            .map(|_| WallClock {
                drift: drift(&mut random),
                // Numbers that servers forget are only made up for by clocks that agree.
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
            dialect: if random.random_ratio(1, 4) { Dialect::Redisson } else { Dialect::Plain },
            latency: 0..=random.random_range(1..=12),
            leases,
            restart_guard: weakness == Weakness::None
                && (steps || forgets && random.random_ratio(1, 2)),
            promises_guard: true,
            idle: None,
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

    pub(super) fn longest_lease(&self) -> Duration {
        self.leases.iter().max().copied().unwrap_or_default()
    }

    /// Whether a lock that nobody wants any more is gone long before its lease is over.
    pub(super) fn has_long_leases(&self) -> bool {
        self.longest_lease() > self.length
    }

    /// Some runs are quiet, some are not: they differ by the pauses.
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
                    self.add(end, Fault::AsFastAsBefore { client, server, direction });
                }
                50..65 => self.add(at, Fault::Tear { client, server }),
                65..72 => {
                    // Some for so long that the connection is given up meanwhile.
                    let end = if random.random_ratio(1, 2) { end } else { end + GIVEN_UP };
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
                    self.add(end, Fault::LetGo { client, server, direction: each });
                }
            }
        }
    }

    pub(super) fn add(&mut self, at: Duration, fault: Fault) {
        self.faults.push((at, fault));
    }

    /// Puts the faults in their order.
    pub(super) fn sort(&mut self) {
        self.faults.sort_by_key(|(at, _)| *at);
    }
}

/// Many are as far off as is allowed.
pub(super) fn drift_of_a_clock(random: &mut SmallRng) -> i32 {
    match random.random_range(0..3) {
        0 => *DRIFT.start(),
        1 => *DRIFT.end(),
        _ => random.random_range(DRIFT),
    }
}

fn any_direction(random: &mut SmallRng) -> Direction {
    if random.random_ratio(1, 2) { Direction::ToServer } else { Direction::ToClient }
}
