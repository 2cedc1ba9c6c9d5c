//! Keeps a server that may have forgotten locks from granting locks ("delayed restarts" in the Redis
//! documentation, "Distributed locks with Redis").

pub(crate) mod clock_watch;
pub(crate) mod incarnation;
pub(crate) mod quarantine;
pub(crate) mod wall_clock;
