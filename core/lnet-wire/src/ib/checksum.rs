//! The sum of a message (wire.md 7.2): rotate left by one, add the byte, and never 0, which means
//! that there is none. Old kernels add bytes above 127 as negative numbers, new ones do not, so a
//! receiver has to accept either sum.

/// Whether a byte above 127 is a negative number to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Linux 6.2 and later, on every machine.
    Unsigned,
    /// Earlier kernels on x86.
    Signed,
}

/// The sum of `msg`, whose checksum field (bytes 12 to 15) counts as zero.
pub fn checksum(sign: Sign, msg: &[u8]) -> u32 {
    let sum = msg.iter().enumerate().fold(0_u32, |sum, (at, &byte)| {
        let byte = if (12..16).contains(&at) { 0 } else { byte };
        let number = match sign {
            Sign::Unsigned => u32::from(byte),
            Sign::Signed => i32::from(byte.cast_signed()).cast_unsigned(),
        };
        sum.rotate_left(1).wrapping_add(number)
    });
    sum.max(1)
}
