//! The commands that the library sends to Redis servers, and how it handles their replies.

mod batches;
mod cluster_mode;
mod connect;
mod old_protocol;
mod redisson_wire;
mod server_states;
mod several_keys;
mod wire;
mod wire_names;
