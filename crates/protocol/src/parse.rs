//! The entry of the parser: it takes one request off the front of a buffer.

use crate::classic::any_line;
use crate::fast;
use crate::step::{ParseOptions, Step};

/// Takes the request at the front of `input`, a buffer of pipelined requests that may end anywhere.
///
/// The result for a prefix of a buffer is either [`Step::NeedMore`] or the result for the whole buffer. Nothing
/// behind the returned request is read.
#[inline(always)]
pub fn parse<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    match *input {
        [b'g', b'e', b't', b' ', ..] => fast::get_line(input, b"get ".len(), false, options),
        [b'm', b'g', b' ', ..] => fast::mg_line(input, options),
        [b's', b'e', b't', b' ', ..] => fast::set_line(input, options),
        [b'g', b'e', b't', b's', b' ', ..] => fast::get_line(input, b"gets ".len(), true, options),
        _ => any_line(input, options),
    }
}
