//! The link between two ranks: frames over a pair of pipes, or a connection.

use std::fmt;
use std::io::{self, Read, Write};

use candle_core::{Device, Error, Result, Tensor, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of an order or a message.
const MAX_MESSAGE: usize = 1 << 30;
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
pub struct Link {
    name: String,
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// A link to the rank that is called `name` in errors.
    pub fn new(
        name: impl Into<String>,
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        Self { name: name.into(), reader: Box::new(reader), writer: Box::new(writer) }
    }

    /// Sends a message.
    pub(super) fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let message = postcard::to_stdvec(message).map_err(Error::wrap)?;
        self.write(MESSAGE, message.len(), [message])
    }

    /// Tells the other rank why this one ends.
    pub(super) fn send_failure(&mut self, reason: &str) -> Result<()> {
        self.write(FAILURE, reason.len(), [reason])
    }

    /// Receives a message; none, if the other rank has ended.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let Some((kind, len)) = self.header()? else { return Ok(None) };
        let content = self.content(kind, MESSAGE, len)?;
        Ok(Some(postcard::from_bytes(&content).map_err(|error| self.broken(&error))?))
    }

    /// Sends numbers.
    pub(super) fn send_numbers(&mut self, numbers: &[f32]) -> Result<()> {
        let bytes = |chunk: &[f32]| chunk.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        self.write(NUMBERS, numbers.len(), numbers.chunks(CHUNK).map(bytes))
    }

    /// Receives numbers.
    pub(super) fn receive_numbers(&mut self) -> Result<Vec<f32>> {
        let Some((kind, len)) = self.header()? else { bail!("{} has ended", self.name) };
        let bytes = self.content(kind, NUMBERS, len)?;
        let (numbers, _) = bytes.as_chunks();
        Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn write(
        &mut self,
        kind: u8,
        len: usize,
        content: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<()> {
        let write = || {
            self.writer.write_all(&[kind])?;
            self.writer.write_all(&(len as u64).to_le_bytes())?;
            for part in content {
                self.writer.write_all(part.as_ref())?;
            }
            self.writer.flush()
        };
        write().map_err(|error| self.last_words(&error))
    }

    /// Why the other rank takes nothing any more: what it said before it ended, if it did.
    fn last_words(&mut self, error: &io::Error) -> Error {
        if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
            while let Ok(Some((kind, len))) = self.header() {
                if let Err(failure) = self.content(kind, kind, len) {
                    return failure;
                }
            }
        }
        self.broken(error)
    }

    /// The kind and the length of the next frame; none, if the other rank has ended.
    fn header(&mut self) -> Result<Option<(u8, usize)>> {
        let mut kind = [0];
        let mut len = [0; 8];
        let mut read = || {
            if self.reader.read(&mut kind)? == 0 {
                return Ok(false);
            }
            self.reader.read_exact(&mut len).map(|()| true)
        };
        let has_frame = read().map_err(|error| self.broken(&error))?;
        let len = usize::try_from(u64::from_le_bytes(len)).map_err(|error| self.broken(&error))?;
        Ok(has_frame.then_some((kind[0], len)))
    }

    fn content(&mut self, kind: u8, wanted: u8, len: usize) -> Result<Vec<u8>> {
        let size = if kind == NUMBERS { len.saturating_mul(4) } else { len };
        if size > MAX_MESSAGE {
            bail!("{} sent a frame of {size} bytes, the most are {MAX_MESSAGE}", self.name);
        }
        let mut content = vec![0; size];
        self.reader.read_exact(&mut content).map_err(|error| self.broken(&error))?;
        if kind == FAILURE {
            bail!("{} failed: {}", self.name, String::from_utf8_lossy(&content));
        }
        if kind != wanted {
            bail!("{} sent a frame of kind {kind}, expected {wanted}", self.name);
        }
        Ok(content)
    }

    fn broken(&self, error: &dyn fmt::Display) -> Error {
        Error::Msg(format!("the way to {} is broken: {error}", self.name))
    }
}

/// The elements of a tensor, row by row.
pub(super) fn numbers(x: &Tensor) -> Result<Vec<f32>> {
    x.flatten_all()?.to_vec1()
}

/// A tensor with these elements.
pub(super) fn tensor(numbers: Vec<f32>, dims: &[usize], device: &Device) -> Result<Tensor> {
    Tensor::from_vec(numbers, dims, device)
}
