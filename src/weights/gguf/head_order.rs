//! Undoes the row order that GGUF conversion gives the query and key projections.
//!
//! Rotary embeddings turn pairs of a head's dimensions. Hugging Face checkpoints pair dimension
//! `j` with `j + half`; GGUF files of some architectures store the rows so that the two of a pair
//! are neighbours. Within a head of `2 * half` rows, file row `2 * j + s` is Hugging Face row
//! `s * half + j`. Whole rows move, so quantized rows move as they are.

/// The rows of `bytes` in Hugging Face order.
///
/// `bytes` holds `rows` rows of equal length, split evenly among `heads`; `heads` must divide
/// `rows` into heads of an even number of rows.
pub(crate) fn restore(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let mut restored = vec![0; bytes.len()];
    let row_bytes = bytes.len() / rows;
    let head_rows = rows / heads;
    let half = head_rows / 2;
    for (row, source) in bytes.chunks_exact(row_bytes).enumerate() {
        let (head, within) = (row / head_rows, row % head_rows);
        let target = head * head_rows + (within % 2) * half + within / 2;
        restored[target * row_bytes..][..row_bytes].copy_from_slice(source);
    }
    restored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The conversion's own order, by its definition: `reshape(heads, 2, half, row)`, swap the
    /// middle axes, flatten.
    fn convert(rows: &[[u8; 3]], heads: usize) -> Vec<[u8; 3]> {
        let half = rows.len() / heads / 2;
        let mut converted = Vec::new();
        for head in 0..heads {
            for pair in 0..half {
                for side in 0..2 {
                    converted.push(rows[(head * 2 + side) * half + pair]);
                }
            }
        }
        converted
    }

    #[test]
    fn undoes_the_conversion_for_any_number_of_heads() {
        for (heads, head_rows) in [(1, 2), (1, 8), (3, 4), (8, 16), (5, 2)] {
            let count = heads * head_rows;
            let rows: Vec<[u8; 3]> =
                (0..count).map(|row| [u8::try_from(row).unwrap(), 7, 250]).collect();
            let converted = convert(&rows, heads).concat();
            let restored = restore(&converted, count, heads);
            assert_eq!(restored, rows.concat(), "{heads} heads of {head_rows} rows");
        }
    }
}
