//! Other libraries' locks on the same servers, and a database that refuses a holder that comes late.

mod postgres;
mod redis_py_and_rslock;
mod redisson;
