//! Where a request says that a picture is.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use crate::http::error::ApiError;
use crate::pictures::processor::Detail;

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Where a request says that a picture is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageSource {
    /// A URL, which may hold the picture.
    Url(String),
    /// In the request: a file in base64.
    Base64(String),
}

/// Where a picture is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// In the request: the bytes of a file.
    Here(Vec<u8>),
    /// Behind a URL with `http:` or `https:`.
    Remote(reqwest::Url),
}

impl ImageSource {
    /// Reads what the request says; fails with the reason.
    pub(super) fn locate(&self) -> Result<Location, String> {
        let url = match self {
            Self::Base64(data) => return decoded(data),
            Self::Url(url) => url,
        };
        if let Some(data) = data_of(url) {
            return decoded(data?);
        }
        match reqwest::Url::parse(url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Location::Remote(url)),
            Ok(url) => Err(format!(
                "URLs of the scheme {:?} are not supported, only data, http and https",
                url.scheme()
            )),
            Err(error) => Err(format!("its URL can't be read: {error}")),
        }
    }
}

fn decoded(data: &str) -> Result<Location, String> {
    base64(data).map(Location::Here).map_err(|error| format!("the picture is no base64: {error}"))
}

/// The bytes of a text in base64, with or without padding.
pub(in crate::http::generate) fn base64(data: &str) -> Result<Vec<u8>, base64::DecodeError> {
    BASE64.decode(data.trim())
}

/// The base64 in a data URL; `None` if it is another URL.
pub(in crate::http::generate) fn data_of(url: &str) -> Option<Result<&str, String>> {
    let data = strip_scheme(url, "data:")?;
    Some(match data.split_once(',') {
        None => Err("a data URL has a comma before its data".to_owned()),
        Some((kind, _)) if !kind.to_ascii_lowercase().ends_with(";base64") => {
            Err("the data of a data URL must be base64".to_owned())
        }
        Some((_, data)) => Ok(data),
    })
}

/// What OpenAI's protocols call how closely to look.
pub(crate) fn detail(name: Option<&str>, path: &str) -> Result<Detail, ApiError> {
    match name {
        None | Some("auto" | "high" | "original") => Ok(Detail::Full),
        Some("low") => Ok(Detail::Low),
        Some(other) => {
            let message = format!("{path} must be one of auto, low, high, original, got {other:?}");
            Err(ApiError::field(path, message))
        }
    }
}

fn strip_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let start = url.get(..scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then(|| &url[scheme.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_decoded_and_other_schemes_are_refused() {
        let located = |url: &str| ImageSource::Url(url.to_owned()).locate();
        assert_eq!(located("data:image/png;base64,AQID"), Ok(Location::Here(vec![1, 2, 3])));
        assert_eq!(located("DATA:;BASE64,AQ"), Ok(Location::Here(vec![1])));
        assert!(matches!(located("https://a.example/b.png"), Ok(Location::Remote(_))));
        let wrong = ["data:image/png,AQID", "data:nothing", "data:;base64,?", "file:///etc/passwd"];
        for wrong in wrong.into_iter().chain(["gopher://a", "picture.png", ""]) {
            assert!(located(wrong).is_err(), "{wrong}");
        }
        assert_eq!(ImageSource::Base64("AQ==".to_owned()).locate(), Ok(Location::Here(vec![1])));
    }
}
