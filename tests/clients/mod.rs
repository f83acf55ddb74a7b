//! What others read of us stays true: the dashboard, and the tables of the README.

mod dashboard;
mod readme;
