//! Promises of a lock to its callers. The files of this folder that are not listed here are binaries of their
//! own, because they measure time or memory or keep all cores busy.

mod fencing;
mod keeping;
mod runtimes;
mod several_keys;
mod shared;
mod slow_release;
