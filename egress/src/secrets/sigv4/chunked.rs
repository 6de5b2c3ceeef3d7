//! Bodies that are signed chunk by chunk (`STREAMING-AWS4-HMAC-SHA256-PAYLOAD`).

use super::Signer;

/// The most bytes of a chunk: each is held until it is whole, since its signature stands before
/// it. Clients send 64 KiB to 1 MiB.
pub const MAX_CHUNK: usize = 2 * 1024 * 1024;
/// The most bytes of a line.
const MAX_LINE: usize = 4096;

/// Why a body cannot be signed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It is not in the form of signed chunks.
    #[error("not a body of signed chunks")]
    Malformed,
    /// A chunk is longer than [`MAX_CHUNK`].
    #[error("a chunk has {length} bytes, and {MAX_CHUNK} is the most")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Trailers,
    /// Only the line break at the end is missing.
    End,
    Done,
}

/// Replaces the signatures of chunks that come in pieces. The length of the body does not change.
#[derive(Debug)]
pub struct Chunks {
    signer: Signer,
    previous: String,
    /// Whether signed trailers follow the last chunk.
    with_trailers: bool,
    lines: Vec<u8>,
    held: Vec<u8>,
    state: State,
}

impl Chunks {
    /// Behind the signature of the request, which the first chunk builds on.
    pub fn new(signer: Signer, request: String, with_trailers: bool) -> Self {
        Self {
            signer,
            previous: request,
            with_trailers,
            lines: Vec::new(),
            held: Vec::new(),
            state: State::Head,
        }
    }

    /// Takes the next bytes, and appends what is signed anew to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ChunkError> {
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = self.step(&self.held[at..])? {
            let part = self.held[at..at + length].to_vec();
            at += length;
            self.take(&part, out)?;
        }
        self.held.drain(..at);
        Ok(())
    }

    /// The body has ended.
    pub fn finish(&self) -> Result<(), ChunkError> {
        if self.state == State::Done && self.held.is_empty() {
            Ok(())
        } else {
            Err(ChunkError::Malformed)
        }
    }

    /// How many of the bytes are the next part; none when it is not whole yet.
    fn step(&self, bytes: &[u8]) -> Result<Option<usize>, ChunkError> {
        match self.state {
            State::Head => {
                let Some(line) = line(bytes)? else {
                    return Ok(None);
                };
                let (length, _signature) = head(&bytes[..line])?;
                if length > MAX_CHUNK {
                    return Err(ChunkError::TooLong { length });
                }
                // The head alone for the last one, and with all of its data for any other.
                let whole = if length == 0 { line } else { line + length + 2 };
                Ok((bytes.len() >= whole).then_some(whole))
            }
            State::Trailers | State::End => line(bytes),
            State::Done if bytes.is_empty() => Ok(None),
            State::Done => Err(ChunkError::Malformed),
        }
    }

    fn take(&mut self, part: &[u8], out: &mut Vec<u8>) -> Result<(), ChunkError> {
        match self.state {
            State::Head => {
                let end = line(part)?.ok_or(ChunkError::Malformed)?;
                let (length, signature) = head(&part[..end])?;
                let data = part.get(end..end + length).ok_or(ChunkError::Malformed)?;
                if length > 0 && part.get(end + length..) != Some(b"\r\n") {
                    return Err(ChunkError::Malformed);
                }
                let new = self.signer.chunk(&self.previous, data);
                out.extend_from_slice(&part[..signature]);
                out.extend_from_slice(new.as_bytes());
                out.extend_from_slice(&part[signature + new.len()..]);
                self.previous = new;
                self.state = match (length, self.with_trailers) {
                    (1.., _) => State::Head,
                    (0, true) => State::Trailers,
                    (0, false) => State::End,
                };
            }
            State::Trailers => {
                const SIGNATURE: &[u8] = b"x-amz-trailer-signature:";
                let text = part.trim_ascii_end();
                match text.split_at_checked(SIGNATURE.len()) {
                    Some((name, old)) if name.eq_ignore_ascii_case(SIGNATURE) => {
                        let new = self.signer.trailer(&self.previous, &self.lines);
                        if old.trim_ascii().len() != new.len() {
                            return Err(ChunkError::Malformed);
                        }
                        let start = text.len() - new.len();
                        out.extend_from_slice(&part[..start]);
                        out.extend_from_slice(new.as_bytes());
                        out.extend_from_slice(&part[text.len()..]);
                        self.state = State::End;
                    }
                    // Some clients end the trailers with an empty line before the signature.
                    _ => {
                        if !text.is_empty() {
                            self.lines.extend_from_slice(text);
                            self.lines.push(b'\n');
                        }
                        if self.lines.len() > 4 * MAX_LINE {
                            return Err(ChunkError::Malformed);
                        }
                        out.extend_from_slice(part);
                    }
                }
            }
            State::End if part == b"\r\n" => {
                out.extend_from_slice(part);
                self.state = State::Done;
            }
            State::End | State::Done => return Err(ChunkError::Malformed),
        }
        Ok(())
    }
}

/// The length of the line that bytes begin with, its end included.
fn line(bytes: &[u8]) -> Result<Option<usize>, ChunkError> {
    match memchr::memmem::find(bytes, b"\r\n") {
        Some(at) if at <= MAX_LINE => Ok(Some(at + 2)),
        None if bytes.len() <= MAX_LINE => Ok(None),
        _ => Err(ChunkError::Malformed),
    }
}

/// The length of a chunk, and where its signature stands in its head.
fn head(line: &[u8]) -> Result<(usize, usize), ChunkError> {
    const SIGNATURE: &[u8] = b";chunk-signature=";
    let text = line.strip_suffix(b"\r\n").unwrap_or(line);
    let digits = memchr::memchr(b';', text).ok_or(ChunkError::Malformed)?;
    let (length, rest) = text.split_at(digits);
    let signature = rest.strip_prefix(SIGNATURE).ok_or(ChunkError::Malformed)?;
    let hexadecimal = signature.iter().all(u8::is_ascii_hexdigit);
    if !(1..=8).contains(&digits) || signature.len() != 64 || !hexadecimal {
        return Err(ChunkError::Malformed);
    }
    let mut value = 0usize;
    for digit in length {
        let digit = char::from(*digit)
            .to_digit(16)
            .ok_or(ChunkError::Malformed)?;
        value = value << 4 | usize::try_from(digit).unwrap_or_default();
    }
    Ok((value, digits + SIGNATURE.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::sigv4::{Credentials, Scope};

    fn signer() -> Signer {
        let secret = b"AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let credentials = Credentials::parse(secret).unwrap();
        let scope = Scope::parse("AKIA/20130524/us-east-1/s3/aws4_request").unwrap();
        Signer::new(&credentials, scope, "20130524T000000Z").unwrap()
    }

    fn body(signatures: [&str; 3], trailer: Option<&str>) -> Vec<u8> {
        let [a, b, c] = signatures;
        let mut body = format!("10000;chunk-signature={a}\r\n").into_bytes();
        body.extend(vec![b'a'; 65536]);
        body.extend(format!("\r\n400;chunk-signature={b}\r\n").into_bytes());
        body.extend(vec![b'a'; 1024]);
        body.extend(format!("\r\n0;chunk-signature={c}\r\n").into_bytes());
        if let Some(trailer) = trailer {
            let trailers = "x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:";
            body.extend(format!("{trailers}{trailer}\r\n").into_bytes());
        }
        body.extend(b"\r\n");
        body
    }

    fn signed(seed: &str, body: &[u8], piece: usize, trailers: bool) -> Vec<u8> {
        let mut chunks = Chunks::new(signer(), seed.to_owned(), trailers);
        let mut out = Vec::new();
        for piece in body.chunks(piece) {
            chunks.push(piece, &mut out).unwrap();
        }
        chunks.finish().unwrap();
        out
    }

    /// The signatures are those of S3's documentation.
    #[test]
    fn chunks_get_the_signatures_of_the_documentation() {
        let dummy = "0".repeat(64);
        let expected = body(
            [
                "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
                "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
                "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
            ],
            None,
        );
        let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
        let sent = body([&dummy, &dummy, &dummy], None);
        for piece in [100_000, 4096, 13] {
            assert!(signed(seed, &sent, piece, false) == expected, "{piece}");
        }
        let expected = body(
            [
                "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
                "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
                "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
            ],
            Some("d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"),
        );
        let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
        let sent = body([&dummy, &dummy, &dummy], Some(&dummy));
        for piece in [100_000, 4096, 13] {
            assert!(signed(seed, &sent, piece, true) == expected, "{piece}");
        }
    }

    #[test]
    fn what_is_no_body_of_chunks_is_refused() {
        let dummy = "0".repeat(64);
        let good = format!("1;chunk-signature={dummy}\r\na\r\n0;chunk-signature={dummy}\r\n\r\n");
        let check = |text: &str| {
            let mut chunks = Chunks::new(signer(), dummy.clone(), false);
            chunks.push(text.as_bytes(), &mut Vec::new())?;
            chunks.finish()
        };
        assert_eq!(check(&good), Ok(()));
        for bad in [
            "",
            &good[..good.len() - 2],
            &good[..80],
            &format!("{good}x"),
            &good.replace("1;", "2;"),
            &good.replace("1;", ";"),
            &good.replace("1;", "+1;"),
            &good.replace("1;", "000000001;"),
            &good.replace("chunk-signature", "other"),
            &good.replace("\r\na\r\n", "\r\naaa"),
            &"1".repeat(5000),
        ] {
            assert_eq!(check(bad), Err(ChunkError::Malformed), "{bad:.100}");
        }
        let long = format!("{:x};chunk-signature={dummy}\r\n", MAX_CHUNK + 1);
        let length = MAX_CHUNK + 1;
        assert_eq!(check(&long), Err(ChunkError::TooLong { length }));
    }
}
