//! Structs that kernels and their callers share, and the check that both compilers lay them out
//! alike.
//!
//! [`kernel_struct!`] declares such a struct in Rust; in the kernel's source `LAYOUT` of
//! `layout.cuh` exports a table of the names, offsets and types of the fields of the same struct.
//! The two are compared before a kernel is launched for the first time. So a struct that was
//! changed on one side alone is an error, never an argument that is read as another.

use candle_core::{Result, bail};

/// A struct that kernels take as their argument or find in memory.
pub(in crate::kernels) trait KernelStruct: Copy {
    /// How Rust lays it out.
    const LAYOUT: Layout;
}

/// How a struct lies in memory.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Layout {
    /// The struct's name.
    pub(in crate::kernels) name: &'static str,
    /// Bytes.
    pub(in crate::kernels) size: usize,
    /// All fields, in the order of the declaration.
    pub(in crate::kernels) fields: &'static [Field],
    /// The structs that addresses among the fields point to.
    pub(in crate::kernels) pointees: &'static [Layout],
}

/// A field of a [`Layout`].
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Field {
    /// The field's name.
    pub(in crate::kernels) name: &'static str,
    /// Bytes before it.
    pub(in crate::kernels) offset: usize,
    /// Its type, see [`Kind`].
    pub(in crate::kernels) kind: u32,
}

/// A type of fields, as a number that is computed alike in `layout.cuh`.
pub(in crate::kernels) trait Kind {
    /// The number.
    const KIND: u32;
}

impl Kind for u32 {
    const KIND: u32 = hash_of("u32");
}

impl Kind for f32 {
    const KIND: u32 = hash_of("f32");
}

impl Kind for f64 {
    const KIND: u32 = hash_of("f64");
}

impl<T: Kind, const N: usize> Kind for [T; N] {
    const KIND: u32 = mixed(T::KIND, narrowed(N));
}

/// Words of a table before its fields, and of each field.
const WORDS: usize = 3;

impl Layout {
    /// The name of the table that the kernel's source exports.
    pub(super) fn symbol(&self) -> String {
        format!("layout_of_{}", self.name)
    }

    /// How long a table is, by the words that it begins with.
    pub(super) fn table_len([_, _, fields]: [u32; WORDS]) -> usize {
        WORDS + WORDS * fields as usize
    }

    /// Compares the layout with the table that a kernel's source exports.
    ///
    /// # Errors
    ///
    /// They differ.
    pub(super) fn check(&self, table: &[u32]) -> Result<()> {
        let (head, fields) = table.split_at(table.len().min(WORDS));
        let (fields, _) = fields.as_chunks::<WORDS>();
        let differs = |(field, theirs): &(&Field, &[u32; WORDS])| field.words() != **theirs;
        if let Some((field, _)) = self.fields.iter().zip(fields).find(differs) {
            let (name, field, offset) = (self.name, field.name, field.offset);
            bail!(
                "{name}.{field} at byte {offset} is not where or what the kernel's source has it"
            );
        }
        if head != self.words() || fields.len() != self.fields.len() {
            let (name, size, count) = (self.name, self.size, self.fields.len());
            bail!("{name} of {size} bytes and {count} fields is not that of the kernel's source");
        }
        Ok(())
    }

    const fn words(&self) -> [u32; WORDS] {
        [hash_of(self.name), narrowed(self.size), narrowed(self.fields.len())]
    }

    /// The layout in one number: the [`Kind`] of fields that are such a struct.
    pub(in crate::kernels) const fn folded(&self) -> u32 {
        let mut hash = folded(START, self.words());
        let mut index = 0;
        while index < self.fields.len() {
            hash = folded(hash, self.fields[index].words());
            index += 1;
        }
        hash
    }
}

impl Field {
    const fn words(&self) -> [u32; WORDS] {
        [hash_of(self.name), narrowed(self.offset), self.kind]
    }
}

/// Fowler, Noll and Vo's hash (1a, 32 bits), by words.
const START: u32 = 0x811c_9dc5;

const fn mixed(hash: u32, word: u32) -> u32 {
    (hash ^ word).wrapping_mul(0x0100_0193)
}

const fn folded(hash: u32, [first, second, third]: [u32; WORDS]) -> u32 {
    mixed(mixed(mixed(hash, first), second), third)
}

pub(super) const fn hash_of(name: &str) -> u32 {
    let (bytes, mut hash, mut index) = (name.as_bytes(), START, 0);
    while index < bytes.len() {
        hash = mixed(hash, bytes[index] as u32);
        index += 1;
    }
    hash
}

#[expect(clippy::cast_possible_truncation, reason = "arguments of kernels are at most 4 KiB")]
const fn narrowed(size: usize) -> u32 {
    size as u32
}

/// Declares a struct as kernels have it. Behind the name may stand `points to` and the structs that
/// its addresses point to, which are checked too.
macro_rules! kernel_struct {
    (
        $(#[$attribute:meta])*
        $access:vis struct $name:ident $(points to $($pointee:ident),+)? {
            $($(#[$field_attribute:meta])* $field_access:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $access struct $name {
            $($(#[$field_attribute])* $field_access $field: $type,)*
        }

        impl $crate::kernels::cuda::layout::KernelStruct for $name {
            const LAYOUT: $crate::kernels::cuda::layout::Layout =
                $crate::kernels::cuda::layout::Layout {
                    name: stringify!($name),
                    size: size_of::<Self>(),
                    fields: &[$($crate::kernels::cuda::layout::Field {
                        name: stringify!($field),
                        offset: std::mem::offset_of!(Self, $field),
                        kind: <$type as $crate::kernels::cuda::layout::Kind>::KIND,
                    },)*],
                    pointees: &[
                        $($(<$pointee as $crate::kernels::cuda::layout::KernelStruct>::LAYOUT,)+)?
                    ],
                };
        }

        impl $crate::kernels::cuda::layout::Kind for $name {
            const KIND: u32 =
                <Self as $crate::kernels::cuda::layout::KernelStruct>::LAYOUT.folded();
        }
    };
}
pub(in crate::kernels) use kernel_struct;

#[cfg(test)]
mod tests {
    use super::*;

    kernel_struct! {
        #[expect(dead_code, reason = "only its layout is looked at")]
        struct Inner {
            a: u32,
            b: f32,
        }
    }

    kernel_struct! {
        #[expect(dead_code, reason = "only its layout is looked at")]
        struct Outer {
            number: f64,
            inner: Inner,
            three: [u32; 3],
        }
    }

    fn table(layout: &Layout) -> Vec<u32> {
        let fields = layout.fields.iter().map(Field::words);
        std::iter::once(layout.words()).chain(fields).flatten().collect()
    }

    #[test]
    fn a_field_elsewhere_or_of_another_type_is_an_error() {
        let layout = Outer::LAYOUT;
        let own = table(&layout);
        assert_eq!(own.len(), Layout::table_len([own[0], own[1], own[2]]));
        layout.check(&own).unwrap();
        assert_eq!((layout.size, layout.fields[2].offset), (32, 16));
        for word in 0..own.len() {
            let mut other = own.clone();
            other[word] ^= 1;
            let error = layout.check(&other).unwrap_err().to_string();
            let field = word.checked_sub(WORDS).map(|word| layout.fields[word / WORDS].name);
            assert!(error.contains(field.unwrap_or("3 fields")), "{error}");
        }
        assert!(layout.check(&own[..own.len() - WORDS]).is_err());
        assert!(layout.check(&[]).is_err());
    }

    mod swapped {
        kernel_struct! {
            #[expect(dead_code, reason = "only its layout is looked at")]
            pub(super) struct Inner {
                b: f32,
                a: u32,
            }
        }
    }

    #[test]
    fn a_struct_inside_counts_with_its_fields() {
        assert_eq!(Outer::LAYOUT.fields[1].kind, Inner::KIND);
        assert_ne!(swapped::Inner::KIND, Inner::KIND);
    }
}
