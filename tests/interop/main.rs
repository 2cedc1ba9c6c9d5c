//! Locks of other libraries on the same servers, and a database that refuses a late holder.

mod postgres;
mod redis_py_and_rslock;
mod redisson;
