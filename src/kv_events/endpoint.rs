//! Endpoints as vLLM writes them: which are bound and which are connected to.

/// An endpoint of a socket, checked as far as it can be without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// In the spelling of the library, which knows no `*`.
    pub(super) address: String,
    /// Whether it is ours to bind; else somebody else's to connect to.
    pub(super) binds: bool,
}

impl Endpoint {
    /// Reads an endpoint such as `tcp://*:5557`, `tcp://router:5557` or `ipc:///run/events`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let binds = text.contains('*') || text.contains("::") || text.starts_with("ipc://");
        let address = text.replacen("tcp://*:", "tcp://0.0.0.0:", 1);
        if address.starts_with("inproc://") {
            return Err("inproc:// reaches this process alone; use tcp:// or ipc://".to_owned());
        }
        if let Err(error) = address.parse::<zeromq::Endpoint>() {
            return Err(format!("{error}; it must be like tcp://*:5557 or ipc:///run/events"));
        }
        Ok(Self { address, binds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_and_files_are_bound_and_hosts_are_connected_to() {
        let read = |text: &str| Endpoint::parse(text).map(|read| (read.address, read.binds));
        let ok = |address: &str, binds| Ok((address.to_owned(), binds));
        assert_eq!(read("tcp://*:5557"), ok("tcp://0.0.0.0:5557", true));
        assert_eq!(read("tcp://[::]:5557"), ok("tcp://[::]:5557", true));
        assert_eq!(read("ipc:///run/events"), ok("ipc:///run/events", true));
        assert_eq!(read("tcp://router:5557"), ok("tcp://router:5557", false));
        assert_eq!(read("tcp://127.0.0.1:1"), ok("tcp://127.0.0.1:1", false));
        for wrong in ["", "tcp://*", "tcp://*:99999", "inproc://x", "http://x:1", "*:5557"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
