//! Undoes the row order that GGUF conversion gives the projections of attention.
//!
//! Whole rows move, so quantized rows move as they are.

/// Rows of queries or of keys in Hugging Face order.
///
/// Rotary embeddings turn pairs of a head's dimensions. Hugging Face checkpoints pair dimension
/// `j` with `j + half`; GGUF files of some architectures store the rows so that the two of a pair
/// are neighbours. Within a head of `2 * half` rows, file row `2 * j + s` is Hugging Face row
/// `s * half + j`.
///
/// `bytes` holds `rows` rows of equal length, split evenly among `heads`; `heads` must divide
/// `rows` into heads of an even number of rows.
pub(crate) fn in_halves(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    moved(bytes, rows, halves(rows, heads))
}

/// The Hugging Face row that is at a row of the file, for [`in_halves`].
pub(super) fn halves(rows: usize, heads: usize) -> impl Fn(usize) -> usize {
    let head_rows = rows / heads;
    let half = head_rows / 2;
    move |row| {
        let (head, within) = (row / head_rows, row % head_rows);
        head * head_rows + (within % 2) * half + within / 2
    }
}

/// Rows of queries, keys and values together for each key head: the file has all queries, then all
/// keys, then all values, the checkpoint for each key head its queries, its key and its value.
///
/// `bytes` holds `rows` rows of equal length, split evenly among `query` heads and twice `key`
/// heads; `key` must divide `query`.
pub(crate) fn by_group(bytes: &[u8], rows: usize, query: usize, key: usize) -> Vec<u8> {
    moved(bytes, rows, groups(rows, query, key))
}

/// The Hugging Face row that is at a row of the file, for [`by_group`].
pub(super) fn groups(rows: usize, query: usize, key: usize) -> impl Fn(usize) -> usize {
    let head_rows = rows / (query + 2 * key);
    let each = query / key;
    move |row| {
        let (head, within) = (row / head_rows, row % head_rows);
        let (group, place) = match head.checked_sub(query) {
            None => (head / each, head % each),
            Some(head) => (head % key, each + head / key),
        };
        (group * (each + 2) + place) * head_rows + within
    }
}

/// Puts every row where `target` says.
fn moved(bytes: &[u8], rows: usize, target: impl Fn(usize) -> usize) -> Vec<u8> {
    let mut moved = vec![0; bytes.len()];
    let row_bytes = bytes.len() / rows;
    for (row, source) in bytes.chunks_exact(row_bytes).enumerate() {
        moved[target(row) * row_bytes..][..row_bytes].copy_from_slice(source);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` rows that differ.
    fn rows(count: usize) -> Vec<[u8; 3]> {
        (0..count).map(|row| [u8::try_from(row).unwrap(), 7, 250]).collect()
    }

    /// The conversion's own order, by its definition: `reshape(outer, middle, inner, row)`, swap
    /// `middle` with `inner` or with `outer`, flatten.
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
            let rows = rows(count);
            let converted = convert(&rows, heads).concat();
            let restored = in_halves(&converted, count, heads);
            assert_eq!(restored, rows.concat(), "{heads} heads of {head_rows} rows");
        }
    }

    #[test]
    fn queries_keys_and_values_come_back_to_their_heads() {
        for (key, each, head_rows) in
            [(1, 1, 1), (1, 1, 4), (3, 1, 2), (5, 1, 8), (1, 4, 2), (2, 3, 4)]
        {
            let rows = rows(key * (each + 2) * head_rows);
            let mut converted = Vec::new();
            for places in [0..each, each..each + 1, each + 1..each + 2] {
                for group in 0..key {
                    let start = group * (each + 2);
                    let all = (start + places.start) * head_rows..(start + places.end) * head_rows;
                    converted.extend_from_slice(&rows[all]);
                }
            }
            let restored = by_group(&converted.concat(), rows.len(), key * each, key);
            assert_eq!(restored, rows.concat(), "{key} groups of {each}, {head_rows} rows");
        }
    }
}
