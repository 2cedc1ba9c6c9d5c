//! What the library says to Redis servers, and what it makes of their answers.

mod cluster_mode;
mod connect;
mod redisson_wire;
mod server_states;
mod wire;
mod wire_names;
