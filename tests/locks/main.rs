//! What a lock promises to those who use it. A file of this folder that is not listed here is a binary of
//! its own: it measures time or memory, or keeps all cores busy.

mod fencing;
mod keeping;
mod runtimes;
mod slow_release;
