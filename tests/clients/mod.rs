//! What others read of us stays true: the dashboard, the README and the guide.

mod dashboard;
mod readme;
