//! Who runs in the next step, and how many tokens of each. Pure integers.

pub mod stop;
