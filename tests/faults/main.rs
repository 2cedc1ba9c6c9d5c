//! Servers, networks and clocks that fail. The files of this folder that are not listed here are binaries of
//! their own, whose tests run one after another.

mod clock_steps;
mod network;
mod outages;
mod power_cuts;
mod reconnect;
mod restarts;
