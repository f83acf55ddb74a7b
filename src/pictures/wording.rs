//! What stands in a prompt for a picture: its tokens, and the text around them, which says where a
//! picture begins and ends, which tile is which, and where a row of tokens ends.

use std::ops::Range;
use std::sync::Arc;

use super::cutting::Views;
use super::picture::{Normalization, Picture, Rgb};

/// A part of the text around a picture's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Text, in which special tokens are written out.
    Text(&'static str),
    /// A token.
    Token(u32),
    /// A token that has features of its own beside pictures: which ones, and its id.
    Mark(usize, u32),
    /// Text, unless what stands before it ends with that.
    Once(&'static str),
    /// A space, unless one follows, or the beginning of a mark.
    Gap,
    /// The row of a tile, from 1.
    Row,
    /// The column of a tile, from 1.
    Column,
    /// The number of a tile, from 1, in rows from the top.
    Number,
    /// The number of the picture among those of the prompt, from 0.
    Picture,
}

/// The text around a picture's tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wording {
    /// What a template writes before and behind the token that it leaves for a picture.
    pub around: [&'static str; 2],
    /// Before all of it.
    pub begin: Vec<Word>,
    /// Before each tile.
    pub before_tile: Vec<Word>,
    /// Between two tiles of a row.
    pub between_tiles: Vec<Word>,
    /// Behind each row of tiles.
    pub after_tiles: Vec<Word>,
    /// Between two rows of tiles.
    pub between_tile_rows: Vec<Word>,
    /// Whether the whole picture stands before its tiles, and not behind them.
    pub whole_first: bool,
    /// Before the whole picture, if it stands beside tiles.
    pub before_whole: Vec<Word>,
    /// Before the whole picture, if there are no tiles.
    pub before_alone: Vec<Word>,
    /// Behind the whole picture.
    pub after_whole: Vec<Word>,
    /// Between two rows of tokens of a view.
    pub between_rows: Vec<Word>,
    /// Behind all of it.
    pub end: Vec<Word>,
}

/// A piece of what stands in a prompt for a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A token.
    Token(u32),
    /// Text, unless what stands before it ends with that.
    Once(String),
    /// A space, unless one follows, or `<`.
    Gap,
    /// The number of the picture among those of the prompt, from 0.
    Number,
    /// A token that is seen beside those of pictures.
    Mark {
        /// What is seen there.
        picture: Arc<Picture>,
        /// All of it.
        part: Range<usize>,
        /// The token.
        token: u32,
    },
    /// Tokens of a picture.
    Tokens {
        /// What is seen there: the picture that was sent, or a tile of it.
        picture: Arc<Picture>,
        /// Which of its tokens.
        part: Range<usize>,
    },
}

/// What stands in a prompt for one picture that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// In order.
    pub pieces: Vec<Piece>,
}

impl Prepared {
    /// What is seen, in order.
    pub fn parts(&self) -> impl Iterator<Item = (&Arc<Picture>, &Range<usize>)> {
        self.seen().map(|(_, picture, part)| (picture, part))
    }

    /// The same with the token that stands for it, if that is not the one for tokens of pictures.
    pub fn seen(&self) -> impl Iterator<Item = (Option<u32>, &Arc<Picture>, &Range<usize>)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Tokens { picture, part } => Some((None, picture, part)),
            Piece::Mark { picture, part, token } => Some((Some(*token), picture, part)),
            _ => None,
        })
    }
}

/// How a view becomes a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks<'a> {
    /// Pixels of a side of a token.
    pub(super) side: usize,
    /// Tokens of each view, whatever its size; `None`: one for each square of pixels.
    pub(super) tokens: Option<usize>,
    pub(super) normalization: &'a Normalization,
    pub(super) two_way: bool,
}

impl Wording {
    /// What stands in a prompt for a picture with these views.
    pub(super) fn say(&self, views: Views, looks: Looks<'_>) -> Prepared {
        let Views { tiles, columns, mut whole, joined, reduced } = views;
        let mut said = Said { pieces: Vec::new(), between_rows: &self.between_rows, looks };
        said.words(&self.begin, [0; 3]);
        if let Some(shown) = joined {
            if let Some(whole) = whole {
                said.view(whole);
            }
            match reduced {
                Some(size) => said.reduced(tiles, &shown, size),
                None => said.joined(tiles, columns, shown),
            }
            said.words(&self.end, [0; 3]);
            return Prepared { pieces: said.pieces };
        }
        let tiled = !tiles.is_empty();
        let mut say_whole = |said: &mut Said<'_>| {
            if let Some(whole) = whole.take() {
                said.words(if tiled { &self.before_whole } else { &self.before_alone }, [0; 3]);
                said.view(whole);
                said.words(&self.after_whole, [0; 3]);
            }
        };
        if self.whole_first {
            say_whole(&mut said);
        }
        self.say_tiles(tiles, columns, &mut said);
        say_whole(&mut said);
        said.words(&self.end, [0; 3]);
        Prepared { pieces: said.pieces }
    }

    /// The tiles, one after the other.
    fn say_tiles(&self, tiles: Vec<Rgb>, columns: usize, said: &mut Said<'_>) {
        for (index, tile) in tiles.into_iter().enumerate() {
            let at = [index / columns + 1, index % columns + 1, index + 1];
            if index > 0 && at[1] == 1 {
                said.words(&self.between_tile_rows, at);
            }
            said.words(&self.before_tile, at);
            said.view(tile);
            said.words(if at[1] == columns { &self.after_tiles } else { &self.between_tiles }, at);
        }
    }
}

/// The pieces so far.
struct Said<'a> {
    pieces: Vec<Piece>,
    between_rows: &'a [Word],
    looks: Looks<'a>,
}

impl Said<'_> {
    fn words(&mut self, words: &[Word], [row, column, number]: [usize; 3]) {
        self.pieces.extend(words.iter().map(|word| match word {
            Word::Text(text) => Piece::Text((*text).to_owned()),
            Word::Token(id) => Piece::Token(*id),
            Word::Mark(index, token) => {
                let picture = Arc::new(Picture::of_mark(*index, self.looks.normalization));
                Piece::Mark { picture, part: 0..1, token: *token }
            }
            Word::Once(text) => Piece::Once((*text).to_owned()),
            Word::Gap => Piece::Gap,
            Word::Row => Piece::Text(row.to_string()),
            Word::Column => Piece::Text(column.to_string()),
            Word::Number => Piece::Text(number.to_string()),
            Word::Picture => Piece::Number,
        }));
    }

    /// Rows of the tokens of all tiles together, each with the end of a row behind it.
    fn joined(&mut self, tiles: Vec<Rgb>, across: usize, [rows, columns]: [Range<usize>; 2]) {
        let end = Arc::new(Picture::of_mark(0, self.looks.normalization));
        let tiles: Vec<Arc<Picture>> = tiles.into_iter().map(|tile| self.picture(tile)).collect();
        let [height, width] = tiles.first().map_or([1, 1], |tile| tile.grid());
        for row in rows {
            for column in columns.start / width..columns.end.div_ceil(width) {
                let own =
                    |at: usize| at.clamp(column * width, (column + 1) * width) - column * width;
                let start = row % height * width;
                let part = start + own(columns.start)..start + own(columns.end);
                let picture = tiles[row / height * across + column].clone();
                self.pieces.push(Piece::Tokens { picture, part });
            }
            self.pieces.push(Piece::Tokens { picture: end.clone(), part: 0..1 });
        }
    }

    /// Rows of what the tokens of a canvas are reduced to, each with the end of a row behind it.
    fn reduced(
        &mut self,
        canvas: Vec<Rgb>,
        shown: &[Range<usize>; 2],
        [rows, columns]: [usize; 2],
    ) {
        let normalization = self.looks.normalization;
        let end = Arc::new(Picture::of_mark(0, normalization));
        for canvas in canvas {
            let picture = Picture::reduced(canvas, [rows, columns], shown.clone(), normalization);
            let picture = Arc::new(picture);
            for row in 0..rows {
                let part = row * columns..(row + 1) * columns;
                self.pieces.push(Piece::Tokens { picture: picture.clone(), part });
                self.pieces.push(Piece::Tokens { picture: end.clone(), part: 0..1 });
            }
        }
    }

    fn picture(&self, rgb: Rgb) -> Arc<Picture> {
        let Looks { side, tokens, normalization, two_way } = self.looks;
        let grid = tokens.map_or([rgb.height / side, rgb.width / side], |tokens| [1, tokens]);
        Arc::new(Picture::new(rgb, grid, normalization).seen_both_ways(two_way))
    }

    fn view(&mut self, rgb: Rgb) {
        let picture = self.picture(rgb);
        let [rows, columns] = picture.grid();
        if self.between_rows.is_empty() {
            self.pieces.push(Piece::Tokens { part: 0..rows * columns, picture });
            return;
        }
        for row in 0..rows {
            if row > 0 {
                self.words(self.between_rows, [0; 3]);
            }
            let part = row * columns..(row + 1) * columns;
            self.pieces.push(Piece::Tokens { picture: picture.clone(), part });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(wording: &Wording, views: Views) -> String {
        let normalization = Normalization { mean: [0.0; 3], std: [1.0; 3], narrow: false };
        let looks = Looks { side: 2, tokens: None, normalization: &normalization, two_way: false };
        let pieces = wording.say(views, looks).pieces.into_iter();
        let spelled = pieces.map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Token(id) => format!("<{id}>"),
            Piece::Number => "#".to_owned(),
            Piece::Once(text) => format!("{text}!"),
            Piece::Gap => "_".to_owned(),
            Piece::Mark { token, .. } => format!("<{token}!>"),
            Piece::Tokens { part, .. } => format!("{part:?}"),
        });
        spelled.collect()
    }

    fn rgb(width: usize, height: usize) -> Rgb {
        Rgb { width, height, pixels: vec![0; 3 * width * height] }
    }

    #[test]
    fn tiles_and_rows_are_told_apart() {
        let wording = Wording {
            begin: vec![Word::Text("[")],
            before_tile: vec![Word::Row, Word::Text("."), Word::Column, Word::Text(":")],
            after_tiles: vec![Word::Text("\n")],
            before_whole: vec![Word::Text("all:")],
            before_alone: vec![Word::Text("alone:")],
            end: vec![Word::Token(9)],
            ..Wording::default()
        };
        let tiles = vec![rgb(4, 4), rgb(4, 4)];
        let views =
            Views { tiles, columns: 1, whole: Some(rgb(4, 2)), joined: None, reduced: None };
        assert_eq!(said(&wording, views), "[1.1:0..4\n2.1:0..4\nall:0..2<9>");
        let whole = || Some(rgb(4, 4));
        let alone =
            || Views { tiles: Vec::new(), columns: 0, whole: whole(), joined: None, reduced: None };
        assert_eq!(said(&wording, alone()), "[alone:0..4<9>");
        let rows = Wording { between_rows: vec![Word::Token(7)], ..Wording::default() };
        assert_eq!(said(&rows, alone()), "0..2<7>2..4");
        let tiles = vec![rgb(4, 4), rgb(4, 4)];
        let joined = Some([1..2, 1..3]);
        let views = Views { tiles, columns: 2, whole: whole(), joined, reduced: None };
        assert_eq!(said(&Wording::default(), views), "0..43..42..30..1");
    }

    #[test]
    fn a_canvas_has_fewer_tokens_than_squares() {
        let (tiles, whole) = (vec![rgb(12, 8)], Some(rgb(4, 4)));
        let joined = Some([1..4, 0..6]);
        let views = Views { tiles, columns: 1, whole, joined, reduced: Some([2, 3]) };
        assert_eq!(said(&Wording::default(), views), "0..40..30..13..60..1");
    }

    #[test]
    fn the_whole_may_stand_before_its_tiles() {
        let wording = Wording {
            whole_first: true,
            begin: vec![Word::Picture],
            before_tile: vec![Word::Text("(")],
            between_tiles: vec![Word::Text(")")],
            after_tiles: vec![Word::Text(")")],
            between_tile_rows: vec![Word::Text("\n")],
            before_whole: vec![Word::Text("[")],
            after_whole: vec![Word::Text("]")],
            ..Wording::default()
        };
        let tiles = (0..4).map(|_| rgb(2, 2)).collect();
        let views =
            Views { tiles, columns: 2, whole: Some(rgb(4, 2)), joined: None, reduced: None };
        assert_eq!(said(&wording, views), "#[0..2](0..1)(0..1)\n(0..1)(0..1)");
    }
}
