//! Every metric: its name, type and help in one table.
