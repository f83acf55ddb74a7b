//! The one integration test binary; a room's tests are a module of it.

mod http;
