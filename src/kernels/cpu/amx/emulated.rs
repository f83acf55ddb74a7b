//! Tile registers for tests on machines without them: what their instructions do, by a handler of the signal that they
//! raise there.
//!
//! As strict as the CPU: an instruction on registers without a shape, or on shapes that don't fit each other, ends the
//! process as an unknown instruction does. Operations and encodings: "Intel 64 and IA-32 Architectures Software
//! Developer's Manual", volume 2, `LDTILECFG` to `TILEZERO`.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::Once;

use half::bf16;

use super::{Amx, TILE_ROW, TILE_ROWS};

impl Amx {
    /// The proof that instructions are emulated, from now on.
    pub(in crate::cpu) fn emulated() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            // SAFETY: all zeros are an empty set of signals and no flags; the handler has the signature that
            // SA_SIGINFO asks for.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(
                    libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()),
                    0
                );
            }
        });
        Self(())
    }
}

/// A thread's registers.
struct Registers {
    /// Rows and bytes of a row of each tile, if there is a configuration.
    shapes: Option<[(usize, usize); 8]>,
    tiles: [[[u8; TILE_ROW]; TILE_ROWS]; 8],
}

thread_local! {
    static REGISTERS: RefCell<Registers> =
        const { RefCell::new(Registers { shapes: None, tiles: [[[0; TILE_ROW]; TILE_ROWS]; 8] }) };
}

extern "C" fn handle(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives a handler the context of the thread, which nothing else looks at meanwhile.
    let general = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let done = Instruction::decode(general).and_then(|instruction| {
        REGISTERS.with_borrow_mut(|registers| instruction.run(registers))?;
        Some(instruction.length)
    });
    match done {
        Some(length) => {
            general[libc::REG_RIP as usize] += i64::try_from(length).expect("few bytes");
        }
        // The instruction is met again, and then ends the process.
        // SAFETY: the default action has no handler.
        None => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

/// An instruction with a prefix of three bytes (VEX).
struct Instruction {
    opcode: u8,
    /// 0 to 3 for none, 66, F3 and F2.
    prefix: u8,
    /// The fields `reg`, `r/m` and `vvvv`.
    destination: usize,
    left: usize,
    right: usize,
    /// Where its memory begins, and the distance of rows.
    memory: Option<(usize, usize)>,
    length: usize,
}

impl Instruction {
    /// The instruction that the thread has come to, if it is of the map where those of tiles are.
    fn decode(general: &[i64; 23]) -> Option<Self> {
        let at = usize::try_from(general[libc::REG_RIP as usize]).ok()? as *const u8;
        // SAFETY: the longest instruction is fifteen bytes, and code is never the last of its mapping here.
        let code = unsafe { std::slice::from_raw_parts(at, 15) };
        let &[0xc4, first, second, opcode, fields, ..] = code else { return None };
        if first & 31 != 2 {
            return None;
        }
        let extended =
            |bit: u8, low: u8| usize::from(low & 7) + if first & bit == 0 { 8 } else { 0 };
        let mut instruction = Self {
            opcode,
            prefix: second & 3,
            destination: extended(0x80, fields >> 3),
            left: extended(0x20, fields),
            right: usize::from(!second >> 3 & 15),
            memory: None,
            length: 5,
        };
        if fields >> 6 < 3 {
            let general =
                |register: usize| usize::try_from(general[ORDER[register]].cast_unsigned()).ok();
            let mut base = instruction.left;
            let mut stride = 0;
            if fields & 7 == 4 {
                let scaled = code[5];
                base = extended(0x20, scaled);
                let index = extended(0x40, scaled >> 3);
                stride = if index == 4 { 0 } else { general(index)? << (scaled >> 6) };
                instruction.length += 1;
            }
            let behind = &code[instruction.length..];
            let (distance, bytes) = match fields >> 6 {
                0 if base & 7 == 5 => return None,
                0 => (0, 0),
                1 => (isize::from(behind[0].cast_signed()), 1),
                _ => (i32::from_le_bytes(*behind.first_chunk()?) as isize, 4),
            };
            instruction.length += bytes;
            instruction.memory = Some((general(base)?.wrapping_add_signed(distance), stride));
        }
        Some(instruction)
    }

    /// `None` if it is none of tiles, or not allowed now.
    fn run(&self, registers: &mut Registers) -> Option<()> {
        match (self.opcode, self.prefix, self.memory) {
            (0x49, 0, Some((at, _))) => registers.configure(at),
            (0x49, 0, None) => {
                registers.shapes = None;
                Some(())
            }
            (0x49, 3, None) => {
                registers.shapes?;
                registers.tiles[self.destination] = [[0; TILE_ROW]; TILE_ROWS];
                Some(())
            }
            (0x4b, 1 | 3, Some(memory)) => registers.load(self.destination, memory),
            (0x4b, 2, Some(memory)) => registers.store(self.destination, memory),
            (0x5e, prefix, None) => self.multiply(registers, |sum, left, right| {
                let signed = |signed: bool, byte: u8| {
                    if signed { i32::from(byte.cast_signed()) } else { i32::from(byte) }
                };
                let each = left.into_iter().zip(right);
                let products =
                    each.map(|(x, y)| signed(prefix >= 2, x) * signed(prefix & 1 == 1, y));
                i32::from_le_bytes(sum).wrapping_add(products.sum()).to_le_bytes()
            }),
            (0x5c, 2, None) => self.multiply_pairs(registers),
            _ => None,
        }
    }

    /// Rows, columns and depth of a product whose operands fit each other.
    fn sizes(&self, registers: &Registers) -> Option<[usize; 3]> {
        let shapes = registers.shapes?;
        let [(rows, bytes), left, right] =
            [self.destination, self.left, self.right].map(|tile| shapes[tile]);
        (left.0 == rows && right == (left.1 / 4, bytes)).then_some([rows, bytes / 4, right.0])
    }

    /// Goes on with each sum by four bytes of either side, in ascending K.
    fn multiply(
        &self,
        registers: &mut Registers,
        add: impl Fn([u8; 4], [u8; 4], [u8; 4]) -> [u8; 4],
    ) -> Option<()> {
        let [rows, columns, depth] = self.sizes(registers)?;
        let [left, right] = [self.left, self.right].map(|tile| registers.tiles[tile]);
        let sums = &mut registers.tiles[self.destination];
        for (sums, left) in sums.iter_mut().zip(&left).take(rows) {
            for (left, right) in left.as_chunks().0.iter().zip(&right).take(depth) {
                for (sum, right) in
                    sums.as_chunks_mut().0.iter_mut().zip(right.as_chunks().0).take(columns)
                {
                    *sum = add(*sum, *left, *right);
                }
            }
        }
        Some(())
    }

    /// Even and odd elements of K have a chain each, which begin at zero; their sum is added to what is there.
    fn multiply_pairs(&self, registers: &mut Registers) -> Option<()> {
        let before = registers.tiles[self.destination];
        let chain = |registers: &mut Registers, odd: usize| {
            registers.tiles[self.destination] = [[0; TILE_ROW]; TILE_ROWS];
            self.multiply(registers, |sum, left, right| {
                let of = |pair: [u8; 4]| bf16::from_le_bytes(pair.as_chunks().0[odd]).to_f32();
                // The product of two bf16 is exact.
                (f32::from_le_bytes(sum) + of(left) * of(right)).to_le_bytes()
            })?;
            Some(registers.tiles[self.destination])
        };
        let (even, odd) = (chain(registers, 0)?, chain(registers, 1)?);
        let of = |tile: &[[u8; TILE_ROW]; TILE_ROWS], at: usize| {
            f32::from_le_bytes(tile.as_flattened().as_chunks().0[at])
        };
        let sums = registers.tiles[self.destination].as_flattened_mut().as_chunks_mut().0;
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum = (of(&before, at) + (of(&even, at) + of(&odd, at))).to_le_bytes();
        }
        Some(())
    }
}

impl Registers {
    fn configure(&mut self, at: usize) -> Option<()> {
        // SAFETY: the instruction reads 64 bytes there.
        let bytes = unsafe { *(at as *const [u8; 64]) };
        let shape = |tile: usize| {
            let row = usize::from(u16::from_le_bytes([bytes[16 + 2 * tile], bytes[17 + 2 * tile]]));
            (usize::from(bytes[48 + tile]), row)
        };
        let shapes: [_; 8] = std::array::from_fn(shape);
        let fits =
            |(rows, row): (usize, usize)| rows <= TILE_ROWS && row <= TILE_ROW && row % 4 == 0;
        if bytes[0] != 1 || !shapes.into_iter().all(fits) {
            return None;
        }
        *self = Self { shapes: Some(shapes), tiles: [[[0; TILE_ROW]; TILE_ROWS]; 8] };
        Some(())
    }

    fn load(&mut self, tile: usize, (at, stride): (usize, usize)) -> Option<()> {
        let (rows, bytes) = self.shapes?[tile];
        self.tiles[tile] = [[0; TILE_ROW]; TILE_ROWS];
        for (row, to) in self.tiles[tile].iter_mut().take(rows).enumerate() {
            // SAFETY: the instruction reads so many bytes of so many rows there.
            unsafe { std::ptr::copy((at + row * stride) as *const u8, to.as_mut_ptr(), bytes) }
        }
        Some(())
    }

    fn store(&mut self, tile: usize, (at, stride): (usize, usize)) -> Option<()> {
        let (rows, bytes) = self.shapes?[tile];
        for (row, from) in self.tiles[tile].iter().take(rows).enumerate() {
            // SAFETY: the instruction writes so many bytes of so many rows there.
            unsafe { std::ptr::copy(from.as_ptr(), (at + row * stride) as *mut u8, bytes) }
        }
        Some(())
    }
}

/// General registers as instructions number them.
const ORDER: [usize; 16] = [
    libc::REG_RAX as usize,
    libc::REG_RCX as usize,
    libc::REG_RDX as usize,
    libc::REG_RBX as usize,
    libc::REG_RSP as usize,
    libc::REG_RBP as usize,
    libc::REG_RSI as usize,
    libc::REG_RDI as usize,
    libc::REG_R8 as usize,
    libc::REG_R9 as usize,
    libc::REG_R10 as usize,
    libc::REG_R11 as usize,
    libc::REG_R12 as usize,
    libc::REG_R13 as usize,
    libc::REG_R14 as usize,
    libc::REG_R15 as usize,
];
