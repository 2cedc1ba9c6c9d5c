//! Locks of other libraries on the same servers, and a database that refuses a late holder.

mod plain_locks_and_readers;
mod postgres;
mod redis_py_and_rslock;
mod redisson;
mod redisson_and_readers;
mod shared_entries;
