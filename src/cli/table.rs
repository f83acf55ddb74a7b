//! Rows of text in columns.

use std::io::Write;

/// Writes rows with columns as wide as their widest cells.
pub(super) fn write<const N: usize>(
    out: &mut impl Write,
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> std::io::Result<()> {
    let all: Vec<[String; N]> = std::iter::once(heads.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).filter_map(width).collect();
    for row in &all {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let mut out = Vec::new();
        let rows = [["a", "1"], ["longer", ""]].map(|row| row.map(str::to_owned));
        write(&mut out, ["NAME", "B"], rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME    B\na       1\nlonger\n");
    }
}
