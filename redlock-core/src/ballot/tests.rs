//! Tests of the ballot with scripted nodes.
