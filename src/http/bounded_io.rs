//! A connection's bytes, with bounds on how long a client may take: to begin, and to read what it asked
//! for. What happens between two requests is bounded by the protocol.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The least bytes that say which protocol a client speaks: HTTP/2 begins with as many, and no request
/// of HTTP/1.1 has fewer.
const FIRST: usize = 24;
/// Bytes of an answer that a client has to read each second, in the long run.
const SLOWEST: u32 = 1024;

/// A stream whose client has to keep to bounds, or reading and writing fail.
pub(super) struct BoundedIo<S> {
    stream: S,
    bounds: IoBounds,
    /// Bytes read, up to [`FIRST`].
    read: usize,
    /// When the client must have begun.
    begin: Pin<Box<Sleep>>,
    /// Runs while the client reads too little.
    written: Option<Pin<Box<Sleep>>>,
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoBounds {
    /// For its first bytes.
    pub(super) begin: Duration,
    /// To make room for more of an answer; longer by a second for every KiB that it has taken since.
    pub(super) stall: Duration,
}

impl<S> BoundedIo<S> {
    /// Bounds a new connection.
    pub(super) fn new(stream: S, bounds: IoBounds) -> Self {
        let begin = Box::pin(sleep_until(Instant::now() + bounds.begin));
        Self { stream, bounds, read: 0, begin, written: None }
    }

    /// Notes that the client took `bytes` of an answer, and whether it takes no more now.
    fn note_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
        full: bool,
    ) -> io::Result<()> {
        if !full {
            self.written = None;
            return Ok(());
        }
        let stall = self.bounds.stall;
        let timer =
            self.written.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + stall)));
        if bytes > 0 {
            let taken = u32::try_from(bytes).unwrap_or(u32::MAX);
            let later = timer.deadline() + Duration::from_secs(1) * taken / SLOWEST;
            // It never gets more than it had at the beginning.
            timer.as_mut().reset(later.min(Instant::now() + stall));
        }
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Err(timed_out("the client reads too slowly")),
            Poll::Pending => Ok(()),
        }
    }

    fn after_write(
        &mut self,
        context: &mut Context<'_>,
        asked: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.note_write(context, bytes, bytes < asked)?;
                Poll::Ready(Ok(bytes))
            }
            Poll::Pending => {
                self.note_write(context, 0, true)?;
                Poll::Pending
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if this.read < FIRST {
            this.read += buffer.filled().len() - before;
            if polled.is_pending() && this.begin.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(timed_out("no request came")));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // An answer, if only to a request that never came whole.
        this.read = FIRST;
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.after_write(context, bytes.len(), written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.read = FIRST;
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.after_write(context, parts.iter().map(|part| part.len()).sum(), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if flushed.is_pending() {
            this.note_write(context, 0, true)?;
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = Pin::new(&mut this.stream).poll_shutdown(context);
        if ended.is_pending() {
            this.note_write(context, 0, true)?;
        }
        Poll::Ready(ready!(ended))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn bounds(begin: u64, stall: u64) -> IoBounds {
        IoBounds { begin: Duration::from_millis(begin), stall: Duration::from_millis(stall) }
    }

    /// A time that nothing here takes.
    const LONG: u64 = 600_000;

    #[tokio::test]
    async fn a_client_that_never_begins_is_cut() {
        let (ours, mut theirs) = duplex(64);
        let mut ours = BoundedIo::new(ours, bounds(50, LONG));
        theirs.write_all(b"GET /").await.unwrap();
        let mut buffer = [0; 64];
        assert_eq!(ours.read(&mut buffer).await.unwrap(), 5);
        let error = ours.read(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn one_that_has_begun_may_pause() {
        let (ours, mut theirs) = duplex(64);
        let mut ours = BoundedIo::new(ours, bounds(100, LONG));
        theirs.write_all(&[b'x'; FIRST]).await.unwrap();
        let mut buffer = [0; 64];
        assert_eq!(ours.read(&mut buffer).await.unwrap(), FIRST);
        let slow = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            theirs.write_all(b"y").await.unwrap();
        };
        let (read, ()) = tokio::join!(ours.read(&mut buffer), slow);
        assert_eq!(read.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_cut() {
        let (ours, _theirs) = duplex(64);
        let mut ours = BoundedIo::new(ours, bounds(LONG, 50));
        let error = ours.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// A byte every ten milliseconds is a hundred a second at most.
    #[tokio::test]
    async fn a_client_that_trickles_is_cut() {
        let (ours, mut theirs) = duplex(64);
        let mut ours = BoundedIo::new(ours, bounds(LONG, 200));
        let reader = tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let error = ours.write_all(&[0; 4000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(ours);
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_reads_on_gets_everything() {
        let (ours, mut theirs) = duplex(512);
        let mut ours = BoundedIo::new(ours, bounds(LONG, 60_000));
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.unwrap();
            all.len()
        });
        ours.write_all(&vec![0; 1 << 20]).await.unwrap();
        drop(ours);
        assert_eq!(reader.await.unwrap(), 1 << 20);
    }
}
