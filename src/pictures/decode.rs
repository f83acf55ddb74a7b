//! From a file's bytes to pixels, within bounds that are checked before anything is decoded.
//!
//! As transformers' `load_image` does it: the first frame, turned as EXIF says, without
//! transparency.

use std::io::Cursor;
use std::sync::{Mutex, PoisonError};

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::bounds::{MAX_PIXELS, MAX_SIDE};
use super::error::PictureError;
use super::picture::Rgb;

/// Most bytes that a decoder may take: pixels of four 16-bit numbers, and some room.
const MAX_BYTES: u64 = MAX_PIXELS * 8 + (64 << 20);

/// Pictures are decoded one at a time, so that many large ones never are in memory together.
static DECODING: Mutex<()> = Mutex::new(());

/// The pixels of a PNG, JPEG, WebP or GIF file.
///
/// # Errors
///
/// Another format, a damaged file, more pixels than [`MAX_SIDE`] and [`MAX_PIXELS`] allow.
pub fn decode(bytes: &[u8]) -> Result<Rgb, PictureError> {
    let damaged = |error: image::ImageError| PictureError::Damaged(error.to_string());
    let format = image::guess_format(bytes).map_err(|_| PictureError::Format)?;
    let known = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Gif];
    if !known.contains(&format) {
        return Err(PictureError::Format);
    }
    let reader = || {
        let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(MAX_BYTES);
        reader.limits(limits);
        reader
    };
    let (width, height) = reader().into_dimensions().map_err(damaged)?;
    if width.max(height) > MAX_SIDE || u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(PictureError::TooLarge { width, height });
    }
    let _one = DECODING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut decoder = reader().into_decoder().map_err(damaged)?;
    let orientation = decoder.orientation().map_err(damaged)?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    picture.apply_orientation(orientation);
    let rgb = picture.into_rgb8();
    let (width, height) = (rgb.width() as usize, rgb.height() as usize);
    if width == 0 || height == 0 {
        return Err(PictureError::Damaged("it has no pixels".to_owned()));
    }
    Ok(Rgb { width, height, pixels: rgb.into_raw() })
}

#[cfg(test)]
mod tests {
    use image::{ExtendedColorType, ImageEncoder, RgbImage, codecs};

    use super::*;

    fn picture() -> RgbImage {
        let byte = |n: u32| u8::try_from(n).unwrap();
        RgbImage::from_fn(7, 5, |x, y| image::Rgb([byte(x * 30), byte(y * 50), 9]))
    }

    fn file(format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        DynamicImage::from(picture()).write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn every_format_gives_the_pixels_back() {
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg, ImageFormat::Gif] {
            let rgb = decode(&file(format)).unwrap();
            assert_eq!((rgb.width, rgb.height), (7, 5));
            let lossy = matches!(format, ImageFormat::Jpeg | ImageFormat::Gif);
            assert!(lossy || rgb.pixels == picture().into_raw(), "{format:?}");
        }
    }

    #[test]
    fn transparency_is_left_out() {
        let mut bytes = Vec::new();
        let encoder = codecs::png::PngEncoder::new(&mut bytes);
        encoder.write_image(&[1, 2, 3, 0], 1, 1, ExtendedColorType::Rgba8).unwrap();
        assert_eq!(decode(&bytes).unwrap().pixels, [1, 2, 3]);
    }

    #[test]
    fn what_is_no_picture_or_half_of_one_is_refused() {
        assert_eq!(decode(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), Err(PictureError::Format));
        assert_eq!(decode(b""), Err(PictureError::Format));
        assert_eq!(decode(b"BM0000000000000000000000000000"), Err(PictureError::Format));
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg, ImageFormat::Gif] {
            let file = file(format);
            for length in [file.len() / 4, file.len() / 2] {
                let half = decode(&file[..length]);
                assert!(matches!(half, Err(PictureError::Damaged(_))), "{format:?} {half:?}");
            }
        }
    }

    /// The header of a PNG file that says how large it is, without any pixels.
    fn header(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend([8, 2, 0, 0, 0]);
        let checksum = crc32fast::hash(&bytes[12..]);
        bytes.extend(checksum.to_be_bytes());
        bytes.extend(b"\0\0\0\0IDAT");
        bytes.extend(crc32fast::hash(b"IDAT").to_be_bytes());
        bytes
    }

    #[test]
    fn too_many_pixels_are_refused_by_the_header_alone() {
        for (width, height) in [(30_000, 1), (1, 16_385), (16_384, 16_384), (50_000, 50_000)] {
            let refused = decode(&header(width, height));
            assert_eq!(refused, Err(PictureError::TooLarge { width, height }));
        }
        // The decoder itself finds a row of these too long.
        assert!(decode(&header(u32::MAX / 2, 2)).is_err());
        let within = decode(&header(16_384, 2048));
        assert!(matches!(within, Err(PictureError::Damaged(_))), "{within:?}");
    }
}
