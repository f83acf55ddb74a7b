//! Where a request says that a sound is.

use crate::http::generate::images::source::{base64, data_of};

/// Where a request says that a sound is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AudioSource {
    /// A data URL.
    Url(String),
    /// In the request: a file in base64.
    Base64(String),
}

impl AudioSource {
    /// The bytes of the file, `most` of them at most; fails with the reason.
    pub(super) fn bytes(&self, most: usize) -> Result<Vec<u8>, String> {
        let data = match self {
            Self::Base64(data) => data,
            Self::Url(url) => data_of(url)
                .unwrap_or_else(|| Err("sounds are read from data URLs alone".to_owned()))?,
        };
        let bytes = base64(data).map_err(|error| format!("the sound is no base64: {error}"))?;
        if bytes.len() > most {
            let length = bytes.len();
            return Err(format!(
                "the file has {length} bytes, at most {most} are taken (--max-audio-size)"
            ));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_request_and_not_too_large() {
        let url = |url: &str| AudioSource::Url(url.to_owned()).bytes(3);
        assert_eq!(url("data:audio/wav;base64,AQID"), Ok(vec![1, 2, 3]));
        assert!(url("data:audio/wav;base64,AQIDBA").unwrap_err().contains("4 bytes, at most 3"));
        assert!(url("https://a.example/b.wav").unwrap_err().contains("data URLs"));
        let data = |data: &str| AudioSource::Base64(data.to_owned()).bytes(3);
        assert_eq!(data("AQ=="), Ok(vec![1]));
        assert!(data("?").unwrap_err().contains("no base64"));
    }
}
