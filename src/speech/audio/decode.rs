//! Opens a file of sound and decodes it piece by piece.

use std::io::Cursor;

use bytes::Bytes;
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use super::error::AudioError;
use super::opus::{self, Opus};

/// Samples of a second that files may have.
const RATES: std::ops::RangeInclusive<usize> = 1000..=384_000;
/// Channels that files may have.
const CHANNELS: std::ops::RangeInclusive<usize> = 1..=32;
/// Packets in a row that may make no sense, as the tail of an interrupted recording does, or what some
/// encoders put before the first frame.
const BAD_PACKETS: usize = 16;

/// Some samples, all channels mixed to one.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// From -1 to 1, or a bit more.
    pub samples: &'a [f32],
    /// Samples of a second, the same for all pieces of a file.
    pub rate: usize,
}

/// What decodes the packets of a track.
enum Decoder {
    Symphonia(Box<dyn AudioDecoder>),
    Opus(Box<Opus>),
}

impl Decoder {
    fn new(parameters: &AudioCodecParameters) -> Result<Self, AudioError> {
        if parameters.codec == CODEC_ID_OPUS {
            return Opus::new(parameters).map(Box::new).map(Self::Opus);
        }
        symphonia::default::get_codecs()
            .make_audio_decoder(parameters, &AudioDecoderOptions::default())
            .map(Self::Symphonia)
            .map_err(|error| match error {
                Error::Unsupported(_) => AudioError::UnknownCodec(parameters.codec.to_string()),
                other => broken(0.0, &other),
            })
    }

    /// The interleaved samples of a packet, samples of a second, and channels.
    fn decode(
        &mut self,
        packet: &Packet,
        interleaved: &mut Vec<f32>,
    ) -> Result<(usize, usize), Error> {
        match self {
            Self::Symphonia(decoder) => {
                let samples = decoder.decode(packet)?;
                samples.copy_to_vec_interleaved(interleaved);
                Ok((samples.spec().rate() as usize, samples.spec().channels().count()))
            }
            Self::Opus(decoder) => {
                decoder.decode(packet, interleaved)?;
                Ok((opus::RATE as usize, decoder.channels()))
            }
        }
    }
}

/// An open file, decoded as far as its samples were asked for.
pub struct SoundFile {
    reader: Box<dyn FormatReader>,
    decoder: Decoder,
    track: u32,
    rate: usize,
    channels: usize,
    /// Frames that were handed out.
    frames: u64,
    interleaved: Vec<f32>,
    mono: Vec<f32>,
}

impl SoundFile {
    /// Opens a file by what is in it, whatever its name says. Reads its head only.
    ///
    /// # Errors
    /// The format or the codec isn't known, or the head is out of the bounds of any recording.
    pub fn open(file: Bytes) -> Result<Self, AudioError> {
        if file.is_empty() {
            return Err(AudioError::Empty);
        }
        let stream = MediaSourceStream::new(
            Box::new(Cursor::new(file)),
            MediaSourceStreamOptions::default(),
        );
        let (format, metadata) = (FormatOptions::default(), MetadataOptions::default());
        let reader = symphonia::default::get_probe()
            .probe(&Hint::new(), stream, format, metadata)
            .map_err(|_| AudioError::UnknownFormat)?;
        let track = track_of(reader.as_ref()).ok_or(AudioError::NoTrack)?;
        let parameters = parameters(track).ok_or(AudioError::NoTrack)?;
        if let Some(rate) = parameters.sample_rate {
            check("samples a second", rate as usize, RATES)?;
        }
        if let Some(channels) = &parameters.channels {
            check("channels", channels.count(), CHANNELS)?;
        }
        let decoder = Decoder::new(parameters)?;
        let (rate, channels) = (
            parameters.sample_rate.unwrap_or_default() as usize,
            parameters.channels.as_ref().map_or(0, symphonia::core::audio::Channels::count),
        );
        let track = track.id;
        Ok(Self {
            reader,
            decoder,
            track,
            rate,
            channels,
            frames: 0,
            interleaved: Vec::new(),
            mono: Vec::new(),
        })
    }

    /// Seconds that were handed out.
    pub fn seconds(&self) -> f64 {
        seconds(self.frames, self.rate)
    }

    /// The next samples; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged, changes its rate, or has samples that are no numbers.
    pub fn read(&mut self) -> Result<Option<Piece<'_>>, AudioError> {
        let mut bad = 0;
        loop {
            let packet = match self.reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return self.end(bad),
                // A file that breaks off, as a recording does that was not closed: what is there counts.
                Err(Error::IoError(error))
                    if error.kind() == std::io::ErrorKind::UnexpectedEof && self.frames > 0 =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(broken(self.seconds(), &error)),
            };
            if packet.track_id != self.track {
                continue;
            }
            match self.decoder.decode(&packet, &mut self.interleaved) {
                Ok(_) if self.interleaved.is_empty() => {}
                Ok((rate, channels)) => {
                    self.take(rate, channels)?;
                    return Ok(Some(Piece { samples: &self.mono, rate: self.rate }));
                }
                Err(Error::DecodeError(reason)) => {
                    bad += 1;
                    if bad > BAD_PACKETS {
                        return Err(broken(self.seconds(), &Error::DecodeError(reason)));
                    }
                }
                Err(error) => return Err(broken(self.seconds(), &error)),
            }
        }
    }

    /// The end of a file, which is none where nothing of it made sense.
    fn end(&self, bad: usize) -> Result<Option<Piece<'_>>, AudioError> {
        if bad > 0 && self.frames == 0 {
            return Err(broken(0.0, &Error::DecodeError("no packet makes sense")));
        }
        Ok(None)
    }

    /// Takes the interleaved samples of a packet.
    fn take(&mut self, rate: usize, channels: usize) -> Result<(), AudioError> {
        if self.frames == 0 {
            check("samples a second", rate, RATES)?;
            check("channels", channels, CHANNELS)?;
            (self.rate, self.channels) = (rate, channels);
        } else if (rate, channels) != (self.rate, self.channels) {
            return Err(AudioError::Changes(self.seconds()));
        }
        #[expect(clippy::cast_precision_loss, reason = "there are few channels")]
        let share = 1.0 / channels as f32;
        let frames = self.interleaved.chunks_exact(channels);
        self.mono.clear();
        self.mono.extend(frames.map(|frame| frame.iter().sum::<f32>() * share));
        if let Some(at) = self.mono.iter().position(|sample| !sample.is_finite()) {
            return Err(AudioError::NotFinite(seconds(self.frames + at as u64, rate)));
        }
        self.frames += self.mono.len() as u64;
        Ok(())
    }
}

/// The track to listen to: the file's default one, or else the first that can be decoded.
fn track_of(reader: &dyn FormatReader) -> Option<&Track> {
    reader.default_track(TrackType::Audio).or_else(|| reader.first_track(TrackType::Audio))
}

fn parameters(track: &Track) -> Option<&AudioCodecParameters> {
    track.codec_params.as_ref()?.audio()
}

fn check(
    what: &'static str,
    found: usize,
    allowed: std::ops::RangeInclusive<usize>,
) -> Result<(), AudioError> {
    if allowed.contains(&found) {
        return Ok(());
    }
    let (least, most) = allowed.into_inner();
    Err(AudioError::OutOfRange { what, found, least, most })
}

fn broken(seconds: f64, error: &Error) -> AudioError {
    let place =
        if seconds > 0.0 { format!("after {seconds:.1} s") } else { "from its start".to_owned() };
    AudioError::Broken { place, reason: error.to_string() }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn seconds(frames: u64, rate: usize) -> f64 {
    frames as f64 / rate.max(1) as f64
}
