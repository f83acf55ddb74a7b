//! The link between two ranks: frames over a pair of pipes, or a connection.

use std::fmt;
use std::io::{self, Read, Write};

use candle_core::{Device, Error, Result, Tensor, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of an order or a message.
const MAX_MESSAGE: usize = 1 << 30;
/// Most bytes of features of pictures in an order, which leaves room for the rest of it.
pub(crate) const MAX_FEATURES: usize = MAX_MESSAGE / 2;
/// Numbers that are converted to bytes at a time.
const CHUNK: usize = 16 << 10;

/// First byte of a frame with a message. A frame is one of these bytes, a length as a little-endian
/// u64, and the content.
const MESSAGE: u8 = b'm';
/// First byte of a frame with numbers; its length counts numbers of four bytes.
const NUMBERS: u8 = b'n';
/// First byte of the last frame of a rank that has failed; the content says why.
const FAILURE: u8 = b'f';

/// One end of the link between two ranks.
#[derive(Debug)]
pub struct Link {
    reader: Reader,
    writer: Writer,
}

/// What receives from the other end of a link.
pub(super) struct Reader {
    name: String,
    inner: Box<dyn Read + Send>,
}

/// What sends to the other end of a link.
pub(super) struct Writer {
    name: String,
    inner: Box<dyn Write + Send>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// A link to the rank that is called `name` in errors.
    pub fn new(
        name: impl Into<String>,
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        let name = name.into();
        Self {
            reader: Reader { name: name.clone(), inner: Box::new(reader) },
            writer: Writer { name, inner: Box::new(writer) },
        }
    }

    /// Both directions, for a thread each.
    pub(super) fn halves(&mut self) -> (&mut Reader, &mut Writer) {
        (&mut self.reader, &mut self.writer)
    }

    /// Sends a message.
    pub(super) fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let message = postcard::to_stdvec(message).map_err(Error::wrap)?;
        let sent = self.writer.write(MESSAGE, message.len(), [message]);
        sent.map_err(|error| self.last_words(&error))
    }

    /// Tells the other rank why this one ends.
    pub(super) fn send_failure(&mut self, reason: &str) -> Result<()> {
        self.writer.send_failure(reason)
    }

    /// Receives a message; none, if the other rank has ended.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let Some((kind, len)) = self.reader.header()? else { return Ok(None) };
        let content = self.reader.content(kind, MESSAGE, len)?;
        let message = postcard::from_bytes(&content);
        Ok(Some(message.map_err(|error| broken(&self.reader.name, &error))?))
    }

    /// Sends numbers.
    pub(super) fn send_numbers(&mut self, numbers: &[f32]) -> Result<()> {
        self.writer.write_numbers(numbers).map_err(|error| self.last_words(&error))
    }

    /// Receives numbers.
    pub(super) fn receive_numbers(&mut self) -> Result<Vec<f32>> {
        self.reader.receive_numbers()
    }

    /// Why the other rank takes nothing any more: what it said before it ended, if it did.
    fn last_words(&mut self, error: &io::Error) -> Error {
        if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
            while let Ok(Some((kind, len))) = self.reader.header() {
                if let Err(failure) = self.reader.content(kind, kind, len) {
                    return failure;
                }
            }
        }
        broken(&self.writer.name, error)
    }
}

impl Reader {
    /// Receives numbers.
    pub(super) fn receive_numbers(&mut self) -> Result<Vec<f32>> {
        let Some((kind, len)) = self.header()? else { bail!("{} has ended", self.name) };
        let bytes = self.content(kind, NUMBERS, len)?;
        let (numbers, _) = bytes.as_chunks();
        Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// The kind and the length of the next frame; none, if the other rank has ended.
    fn header(&mut self) -> Result<Option<(u8, usize)>> {
        let mut kind = [0];
        let mut len = [0; 8];
        let mut read = || {
            if self.inner.read(&mut kind)? == 0 {
                return Ok(false);
            }
            self.inner.read_exact(&mut len).map(|()| true)
        };
        let has_frame = read().map_err(|error| broken(&self.name, &error))?;
        let len = u64::from_le_bytes(len);
        let len = usize::try_from(len).map_err(|error| broken(&self.name, &error))?;
        Ok(has_frame.then_some((kind[0], len)))
    }

    fn content(&mut self, kind: u8, wanted: u8, len: usize) -> Result<Vec<u8>> {
        let size = if kind == NUMBERS { len.saturating_mul(4) } else { len };
        if size > MAX_MESSAGE {
            bail!("{} sent a frame of {size} bytes, the most are {MAX_MESSAGE}", self.name);
        }
        let mut content = vec![0; size];
        self.inner.read_exact(&mut content).map_err(|error| broken(&self.name, &error))?;
        if kind == FAILURE {
            bail!("{} failed: {}", self.name, String::from_utf8_lossy(&content));
        }
        if kind != wanted {
            bail!("{} sent a frame of kind {kind}, expected {wanted}", self.name);
        }
        Ok(content)
    }
}

impl Writer {
    /// Sends numbers.
    pub(super) fn send_numbers(&mut self, numbers: &[f32]) -> Result<()> {
        self.write_numbers(numbers).map_err(|error| broken(&self.name, &error))
    }

    /// Tells the other rank why this one ends.
    pub(super) fn send_failure(&mut self, reason: &str) -> Result<()> {
        let sent = self.write(FAILURE, reason.len(), [reason]);
        sent.map_err(|error| broken(&self.name, &error))
    }

    fn write_numbers(&mut self, numbers: &[f32]) -> io::Result<()> {
        let bytes = |chunk: &[f32]| chunk.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        self.write(NUMBERS, numbers.len(), numbers.chunks(CHUNK).map(bytes))
    }

    fn write(
        &mut self,
        kind: u8,
        len: usize,
        content: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> io::Result<()> {
        self.inner.write_all(&[kind])?;
        self.inner.write_all(&(len as u64).to_le_bytes())?;
        for part in content {
            self.inner.write_all(part.as_ref())?;
        }
        self.inner.flush()
    }
}

fn broken(name: &str, error: &dyn fmt::Display) -> Error {
    Error::Msg(format!("the way to {name} is broken: {error}"))
}

/// The elements of a tensor, row by row.
pub(super) fn numbers(x: &Tensor) -> Result<Vec<f32>> {
    x.flatten_all()?.to_vec1()
}

/// A tensor with these elements.
pub(super) fn tensor(numbers: Vec<f32>, dims: &[usize], device: &Device) -> Result<Tensor> {
    Tensor::from_vec(numbers, dims, device)
}
