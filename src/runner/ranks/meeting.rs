//! How ranks on several machines find each other: rank 0 waits where all know, and the others come.

use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use super::link::Link;
use super::secret::{Hello, JoinError, Secret};

/// Longest time that a connection may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a machine that is gone is waited for.
const SILENCE: Duration = Duration::from_secs(20);
/// How often somebody is looked for.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the log says who is still missing.
const REPORT: Duration = Duration::from_secs(15);
/// Connections that may be about to say who they are.
const MOST_AT_ONCE: usize = 64;
/// Bytes that are sent or received at a time.
const BUFFER: usize = 256 << 10;

/// The place where rank 0 waits.
#[derive(Debug)]
pub struct Meeting {
    listener: TcpListener,
    secret: Secret,
    /// How many ranks there are, and what they must have in common.
    size: usize,
    model: String,
}

impl Meeting {
    /// Waits at this address, for ranks of `size` that say they have this model.
    ///
    /// # Errors
    ///
    /// The address is none of this machine, or taken.
    pub fn at(
        address: &[SocketAddr],
        secret: Secret,
        size: usize,
        model: String,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, secret, size, model })
    }

    /// Waits until all these ranks are there, however long it takes. A rank that comes twice has been
    /// started again; the last one counts.
    ///
    /// # Errors
    ///
    /// The listener fails.
    pub fn links(self, ranks: Range<usize>) -> io::Result<Vec<Link>> {
        let (sender, arrivals) = mpsc::channel();
        let mut there: BTreeMap<usize, (SocketAddr, TcpStream)> = BTreeMap::new();
        let (mut at_once, mut told) = (0, Instant::now());
        while there.len() < ranks.len() {
            if at_once < MOST_AT_ONCE {
                match self.listener.accept() {
                    Ok((stream, peer)) => {
                        at_once += 1;
                        self.ask(stream, peer, ranks.clone(), sender.clone());
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // It was gone before it was taken.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => return Err(error),
                }
            }
            if let Ok(arrival) = arrivals.recv_timeout(PAUSE) {
                at_once -= 1;
                if let Some((rank, peer, stream)) = arrival {
                    tracing::info!(rank, %peer, "a rank is there");
                    there.insert(rank, (peer, stream));
                }
            }
            if told.elapsed() > REPORT {
                told = Instant::now();
                let missing: Vec<_> =
                    ranks.clone().filter(|rank| !there.contains_key(rank)).collect();
                tracing::warn!(?missing, "ranks on other machines are waited for");
            }
        }
        let link = |(rank, (peer, stream))| link(format!("rank {rank} at {peer}"), stream);
        there.into_iter().map(link).collect()
    }

    /// Asks a connection who it is, on a thread of its own, and sends the answer; nothing, if it is no
    /// rank.
    fn ask(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        ranks: Range<usize>,
        sender: Sender<Option<(usize, SocketAddr, TcpStream)>>,
    ) {
        let (secret, size, model) = (self.secret.clone(), self.size, self.model.clone());
        thread::spawn(move || {
            let judge = |hello: &Hello| judge(hello, &ranks, size, &model);
            let welcomed = prepare(&stream)
                .map_err(JoinError::from)
                .and_then(|()| secret.welcome(&mut &stream, judge));
            let arrival = match welcomed {
                Ok(hello) => Some((hello.rank, peer, stream)),
                Err(error) => {
                    tracing::warn!(%peer, %error, "a connection to the ranks' port was refused");
                    None
                }
            };
            // All are there already.
            let _ = sender.send(arrival);
        });
    }
}

/// What is wrong with a rank.
fn judge(hello: &Hello, ranks: &Range<usize>, size: usize, model: &str) -> Result<(), String> {
    if hello.size != size {
        return Err(format!("it is one of {} ranks, here are {size}", hello.size));
    }
    if !ranks.contains(&hello.rank) {
        let (first, last) = (ranks.start, ranks.end - 1);
        return Err(format!("ranks {first} to {last} are on other machines, it is {}", hello.rank));
    }
    if hello.model != model {
        return Err(format!("it has {}, rank 0 has {model}", hello.model));
    }
    Ok(())
}

/// Joins rank 0 at this address, and gives the connection.
///
/// # Errors
///
/// Nobody is there, or not one that this rank is for.
pub fn join(
    address: impl ToSocketAddrs,
    secret: &Secret,
    hello: &Hello,
) -> Result<TcpStream, JoinError> {
    let stream = connect(address)?;
    prepare(&stream)?;
    secret.join(&mut &stream, hello)?;
    settle(&stream)?;
    Ok(stream)
}

fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A connection on which somebody has yet to say who it is.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Some systems give what a listener that doesn't block has to its connections.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// A connection of a rank: it may be silent, but not without being there.
fn settle(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    let socket = SockRef::from(stream);
    let every = SILENCE / 4;
    let keepalive = TcpKeepalive::new().with_time(every).with_interval(every).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE))?;
    Ok(())
}

fn link(name: String, stream: TcpStream) -> io::Result<Link> {
    settle(&stream)?;
    let reader = BufReader::with_capacity(BUFFER, stream.try_clone()?);
    Ok(Link::new(name, reader, BufWriter::with_capacity(BUFFER, stream)))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const HERE: [SocketAddr; 1] = [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)];

    fn secret() -> Secret {
        Secret::new(vec![3; 32]).unwrap()
    }

    fn meeting(size: usize) -> (Meeting, SocketAddr) {
        let meeting = Meeting::at(&HERE, secret(), size, "m".to_owned()).unwrap();
        let address = meeting.listener.local_addr().unwrap();
        (meeting, address)
    }

    fn hello(rank: usize, size: usize) -> Hello {
        Hello { rank, size, model: "m".to_owned() }
    }

    #[test]
    fn ranks_are_linked_in_their_order_whenever_they_come() {
        let (meeting, address) = meeting(3);
        let come = thread::spawn(move || {
            // Somebody who says nothing, and somebody who left, hold up nobody.
            let _silent = TcpStream::connect(address).unwrap();
            drop(TcpStream::connect(address).unwrap());
            let two = join(address, &secret(), &hello(2, 3)).unwrap();
            let one = join(address, &secret(), &hello(1, 3)).unwrap();
            [one, two].map(|stream| {
                let mut link = link("rank 0".to_owned(), stream).unwrap();
                link.receive::<u32>().unwrap()
            })
        });
        let mut links = meeting.links(1..3).unwrap();
        for (number, link) in (1u32..).zip(&mut links) {
            link.send(&number).unwrap();
        }
        assert_eq!(come.join().unwrap(), [Some(1), Some(2)]);
    }

    #[test]
    fn ranks_that_do_not_belong_here_are_told_why() {
        let (meeting, address) = meeting(3);
        let waits = thread::spawn(move || meeting.links(2..3).map(drop));
        let told = |hello: Hello| join(address, &secret(), &hello).unwrap_err().to_string();
        let size = told(hello(2, 4));
        assert!(size.contains("one of 4 ranks, here are 3"), "{size}");
        let rank = told(hello(1, 3));
        assert!(rank.contains("it is 1"), "{rank}");
        let model = told(Hello { model: "another".to_owned(), ..hello(2, 3) });
        assert!(model.contains("it has another, rank 0 has m"), "{model}");
        let other = Secret::new(vec![4; 32]).unwrap();
        let secret_differs = join(address, &other, &hello(2, 3)).unwrap_err().to_string();
        assert!(secret_differs.contains("--rank-secret-file"), "{secret_differs}");
        // The right one is still welcome; then nobody is.
        join(address, &secret(), &hello(2, 3)).unwrap();
        waits.join().unwrap().unwrap();
        assert!(matches!(join(address, &secret(), &hello(2, 3)), Err(JoinError::Broken(_))));
    }
}
