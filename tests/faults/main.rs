//! Servers, networks and clocks that fail. A file of this folder that is not listed here is a binary of
//! its own: its tests run one after another.

mod clock_steps;
mod network;
mod outages;
mod power_cuts;
mod reconnect;
mod restarts;
