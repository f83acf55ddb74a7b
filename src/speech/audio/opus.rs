//! Opus, which symphonia's containers know and its decoders don't: packets to samples by `ropus`, a port of
//! libopus. Loss is not concealed: what is missing in a file is missing.

use ropus::{Channels, DecodeMode, Decoder};
use symphonia::core::codecs::audio::AudioCodecParameters;
use symphonia::core::errors::Error;
use symphonia::core::packet::Packet;

use super::error::AudioError;

/// Samples of a second, whatever was recorded.
pub(super) const RATE: u32 = 48_000;
/// Samples of the longest packet, 120 ms.
const LONGEST: usize = RATE as usize * 120 / 1000;
/// Bytes of a header up to its gain.
const HEADER: usize = 18;

/// The decoder of one track.
pub(super) struct Opus {
    decoder: Decoder,
    channels: usize,
    /// Samples of each channel before the sound begins that are still to be dropped.
    skipped: usize,
    /// What samples are multiplied by.
    gain: f32,
}

impl Opus {
    /// A decoder for a track with these parameters, of which the header is a part.
    pub(super) fn new(parameters: &AudioCodecParameters) -> Result<Self, AudioError> {
        let header = parameters.extra_data.as_deref().unwrap_or_default();
        let header = header.get(..HEADER).filter(|header| header.starts_with(b"OpusHead"));
        let given = parameters.channels.as_ref().map(symphonia::core::audio::Channels::count);
        let count = header.map_or(given.unwrap_or(1), |header| usize::from(header[9]));
        let channels = match count {
            1 => Channels::Mono,
            2 => Channels::Stereo,
            found => {
                let what = "channels of Opus";
                return Err(AudioError::OutOfRange { what, found, least: 1, most: 2 });
            }
        };
        let decoder = Decoder::new(RATE, channels).map_err(|error| AudioError::Broken {
            place: START.to_owned(),
            reason: error.to_string(),
        })?;
        let skipped = header.map_or(0, |header| u16::from_le_bytes([header[10], header[11]]));
        // In 256ths of a decibel: RFC 7845, section 5.1.
        let gain = header.map_or(0, |header| i16::from_le_bytes([header[16], header[17]]));
        let gain = 10_f32.powf(f32::from(gain) / (20.0 * 256.0));
        Ok(Self { decoder, channels: count, skipped: usize::from(skipped), gain })
    }

    /// Channels of the samples.
    pub(super) fn channels(&self) -> usize {
        self.channels
    }

    /// The samples of a packet to `interleaved`; fails where it makes no sense.
    pub(super) fn decode(
        &mut self,
        packet: &Packet,
        interleaved: &mut Vec<f32>,
    ) -> Result<(), Error> {
        interleaved.resize(LONGEST * self.channels, 0.0);
        let mode = DecodeMode::Normal;
        // Without data a lost packet would be concealed.
        let decoded = if packet.data.is_empty() {
            0
        } else {
            let decoded = self.decoder.decode_float(&packet.data, interleaved, mode);
            decoded.map_err(|_| Error::DecodeError("a packet of Opus makes no sense"))?
        };
        let trimmed = |duration: u64| usize::try_from(duration).unwrap_or(usize::MAX);
        let end = decoded.saturating_sub(trimmed(packet.trim_end.get()));
        interleaved.truncate(end * self.channels);
        let skipped = self.skipped.min(end);
        self.skipped -= skipped;
        interleaved.drain(..skipped * self.channels);
        for sample in interleaved.iter_mut() {
            *sample *= self.gain;
        }
        Ok(())
    }
}

/// Where a file can't be decoded of which nothing was.
const START: &str = "from its start";
