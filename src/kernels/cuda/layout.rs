//! Structs that kernels and their callers share, and the check that both compilers lay them out
//! alike.
//!
//! [`kernel_struct!`] declares such a struct in Rust, `LAYOUT` of `layout.cuh` exports what the
//! compiler of the kernels made of its own: each hashes the names, offsets and types of all fields.
//! The two are compared before a kernel is launched for the first time. So a struct that was changed
//! on one side alone is an error, never an argument that is read as another.

use candle_core::{Result, bail};

/// A struct that kernels take as their argument or find in memory.
pub(crate) trait KernelStruct: Copy + Kind {
    /// The struct's name, in Rust and in the kernels' source.
    const NAME: &'static str;
    /// Names and kinds of the structs that addresses among the fields point to.
    const POINTEES: &'static [(&'static str, u32)];
}

/// A type of fields as a number, which `layout.cuh` computes alike.
pub(crate) trait Kind {
    /// The number: of a struct, the hash of its layout.
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
    const KIND: u32 = mixed(T::KIND, N);
}

/// Compares the layout of a struct, and of those that it points to, with what the kernels export:
/// `exports` says whether a symbol stands for this number.
///
/// # Errors
///
/// The layouts differ.
pub(super) fn check<A: KernelStruct>(exports: impl Fn(&str, u32) -> bool) -> Result<()> {
    for (name, kind) in [(A::NAME, A::KIND)].iter().chain(A::POINTEES) {
        if !exports(&format!("layout_of_{name}"), *kind) {
            bail!("{name} has other fields, or has them elsewhere, in the source of its kernels");
        }
    }
    Ok(())
}

/// Fowler, Noll and Vo's hash (1a, 32 bits) of a name.
pub(crate) const fn hash_of(name: &str) -> u32 {
    let (bytes, mut hash, mut index) = (name.as_bytes(), 0x811c_9dc5, 0);
    while index < bytes.len() {
        hash = mixed(hash, bytes[index] as usize);
        index += 1;
    }
    hash
}

/// A hash that takes one more number in.
#[expect(clippy::cast_possible_truncation, reason = "sizes and hashes of 32 bits")]
pub(crate) const fn mixed(hash: u32, number: usize) -> u32 {
    (hash ^ number as u32).wrapping_mul(0x0100_0193)
}

/// Declares a struct as kernels have it. Behind the name may stand `points to` and the structs that
/// its addresses point to, which are checked too.
macro_rules! kernel_struct {
    (
        $(#[$attribute:meta])*
        $access:vis struct $name:ident $(points to $($pointee:ident),+)? {
            $($(#[$field_attribute:meta])* $field_access:vis $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $access struct $name {
            $($(#[$field_attribute])* $field_access $field: $type,)*
        }

        impl $crate::cuda::layout::Kind for $name {
            const KIND: u32 = {
                use $crate::cuda::layout::{Kind, hash_of, mixed};
                let mut hash = mixed(hash_of(stringify!($name)), size_of::<Self>());
                $(
                    hash = mixed(hash, hash_of(stringify!($field)) as usize);
                    hash = mixed(hash, std::mem::offset_of!(Self, $field));
                    hash = mixed(hash, <$type as Kind>::KIND as usize);
                )*
                hash
            };
        }

        impl $crate::cuda::layout::KernelStruct for $name {
            const NAME: &'static str = stringify!($name);
            const POINTEES: &'static [(&'static str, u32)] = &[$($((
                <$pointee as $crate::cuda::layout::KernelStruct>::NAME,
                <$pointee as $crate::cuda::layout::Kind>::KIND,
            )),+)?];
        }
    };
}
pub(crate) use kernel_struct;

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! kind_of {
        ($($declaration:tt)*) => {{
            kernel_struct! { struct $($declaration)* }
            Shared::KIND
        }};
    }

    #[test]
    fn names_order_and_types_of_fields_count() {
        let kind = kind_of!(Shared { a: u32, b: f32, c: [u32; 2] });
        assert_eq!(kind, kind_of!(Shared { a: u32, b: f32, c: [u32; 2] }));
        assert_ne!(kind, kind_of!(Shared { b: f32, a: u32, c: [u32; 2] }));
        assert_ne!(kind, kind_of!(Shared { b: u32, a: f32, c: [u32; 2] }));
        assert_ne!(kind, kind_of!(Shared { a: u32, b: u32, c: [u32; 2] }));
        assert_ne!(kind, kind_of!(Shared { a: u32, b: f32, c: [f32; 2] }));
        assert_ne!(kind, kind_of!(Shared { a: u32, b: f32, c: [u32; 3] }));
        assert_ne!(kind, kind_of!(Shared { a: u32, b: f32 }));
    }

    kernel_struct! {
        struct Inner {
            a: f64,
        }
    }

    kernel_struct! {
        struct Outer points to Inner {
            inner: Inner,
        }
    }

    #[test]
    fn what_a_struct_points_to_is_compared_too() {
        let exported = |outer: u32, inner: u32| {
            let all = [("layout_of_Outer", outer), ("layout_of_Inner", inner)];
            check::<Outer>(|symbol, kind| all.contains(&(symbol, kind)))
        };
        assert!(exported(Outer::KIND, Inner::KIND).is_ok());
        assert!(exported(1, Inner::KIND).unwrap_err().to_string().contains("Outer has other"));
        assert!(exported(Outer::KIND, 1).unwrap_err().to_string().contains("Inner has other"));
    }
}
