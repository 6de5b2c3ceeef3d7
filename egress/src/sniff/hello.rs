//! The TLS client hello (RFC 8446, section 4.1.2), read without speaking TLS.

use causeway_types::DomainName;

use super::MAX_SNIFF;

/// Why bytes that began as TLS are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The first record is no TLS handshake record at all.
    #[error("this is not TLS")]
    NotTls,
    /// The hello is longer than [`MAX_SNIFF`], or cut into too many records.
    #[error("the client hello is too long")]
    TooLong,
    /// A length contradicts another, or a field is missing.
    #[error("the client hello is malformed")]
    Malformed,
    /// An extension that must be unique is there twice (RFC 8446, section 4.2).
    #[error("the client hello has an extension twice")]
    Repeated,
}

/// The name in the server name extension (RFC 6066, section 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sni {
    /// There is none.
    Absent,
    /// A well-formed host name.
    Name(DomainName),
    /// Something that is no host name: an address, or not in canonical reach.
    Malformed,
}

/// What a policy decision needs of a client hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The name that the client asks for.
    pub sni: Sni,
    /// The protocols that the client offers (RFC 7301), in order.
    pub alpn: Vec<Vec<u8>>,
    /// Whether an encrypted client hello is inside, or something that looks like one: browsers
    /// send a meaningless one to every server, and only the server can tell.
    pub encrypted: bool,
}

impl ClientHello {
    /// Whether the client speaks HTTP after the handshake: it says so, or it says nothing.
    pub fn may_speak_http(&self) -> bool {
        self.alpn.is_empty()
            || self
                .alpn
                .iter()
                .any(|p| matches!(p.as_slice(), b"h2" | b"http/1.1" | b"http/1.0"))
    }
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Plaintext records carry at most this (RFC 8446, section 5.1).
const MAX_RECORD: usize = 1 << 14;
/// Fragmenting a hello is allowed; cutting it into crumbs costs us work at every crumb.
const MAX_RECORDS: usize = 128;
/// Names on the wire are at most this, with room for spellings that canonicalise to less.
const MAX_ALPN: usize = 32;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Reads a client hello from the start of `bytes`. None: it is not complete yet.
pub fn parse(bytes: &[u8]) -> Result<Option<ClientHello>, HelloError> {
    match reassemble(bytes)? {
        None => Ok(None),
        Some(body) => hello(&body).map(Some),
    }
}

/// Joins the handshake message from its records, and gives the body after the header.
fn reassemble(bytes: &[u8]) -> Result<Option<Vec<u8>>, HelloError> {
    let mut message = Vec::new();
    let mut rest = bytes;
    for index in 0..MAX_RECORDS {
        // Checked byte by byte, so that what is not TLS is known at once.
        match rest {
            [kind, ..] if *kind != HANDSHAKE => return Err(wrong_record(index)),
            [_, major, ..] if *major != 3 => return Err(wrong_record(index)),
            _ => {}
        }
        let [_, _, _, high, low, fragment @ ..] = rest else {
            return incomplete(bytes);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length == 0 || length > MAX_RECORD {
            return Err(wrong_record(index));
        }
        let available = length.min(fragment.len());
        message.extend_from_slice(&fragment[..available]);
        if let [kind, a, b, c, body @ ..] = message.as_slice() {
            if *kind != CLIENT_HELLO {
                return Err(HelloError::Malformed);
            }
            let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c]))
                .map_err(|_too_big| HelloError::TooLong)?;
            if length > MAX_SNIFF {
                return Err(HelloError::TooLong);
            }
            if body.len() >= length {
                return Ok(Some(body[..length].to_vec()));
            }
        }
        if available < length {
            return incomplete(bytes);
        }
        rest = &fragment[length..];
    }
    Err(HelloError::TooLong)
}

fn wrong_record(index: usize) -> HelloError {
    if index == 0 {
        HelloError::NotTls
    } else {
        HelloError::Malformed
    }
}

fn incomplete(bytes: &[u8]) -> Result<Option<Vec<u8>>, HelloError> {
    if bytes.len() >= MAX_SNIFF {
        Err(HelloError::TooLong)
    } else {
        Ok(None)
    }
}

fn hello(body: &[u8]) -> Result<ClientHello, HelloError> {
    let mut reader = Reader(body);
    reader.take(2 + 32)?; // Version and random.
    reader.vector8()?; // Session identifier.
    reader.vector16()?; // Cipher suites.
    reader.vector8()?; // Compression methods.
    let mut found = ClientHello {
        sni: Sni::Absent,
        alpn: Vec::new(),
        encrypted: false,
    };
    if reader.is_empty() {
        return Ok(found);
    }
    let mut extensions = Reader(reader.vector16()?);
    if !reader.is_empty() {
        return Err(HelloError::Malformed);
    }
    let (mut names, mut protocols) = (0, 0);
    while !extensions.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        match kind {
            SERVER_NAME => {
                names += 1;
                found.sni = server_name(content)?;
            }
            ALPN => {
                protocols += 1;
                found.alpn = alpn(content)?;
            }
            ENCRYPTED_CLIENT_HELLO => found.encrypted = true,
            _ => {}
        }
    }
    if names > 1 || protocols > 1 {
        return Err(HelloError::Repeated);
    }
    Ok(found)
}

/// Exactly one name of type host name: a list of several can be read in two ways.
fn server_name(content: &[u8]) -> Result<Sni, HelloError> {
    let mut reader = Reader(content);
    let mut list = Reader(reader.vector16()?);
    let kind = list.take(1)?;
    let name = list.vector16()?;
    if kind != [0] || !list.is_empty() || !reader.is_empty() {
        return Err(HelloError::Malformed);
    }
    // RFC 6066 has ASCII here; anything else is a name that servers read differently.
    let text = std::str::from_utf8(name)
        .ok()
        .filter(|text| text.is_ascii());
    Ok(match text.map(DomainName::parse) {
        Some(Ok(name)) => Sni::Name(name),
        _ => Sni::Malformed,
    })
}

fn alpn(content: &[u8]) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut reader = Reader(content);
    let mut list = Reader(reader.vector16()?);
    let mut protocols = Vec::new();
    while !list.is_empty() {
        let protocol = list.vector8()?;
        if protocol.is_empty() || protocols.len() == MAX_ALPN {
            return Err(HelloError::Malformed);
        }
        protocols.push(protocol.to_vec());
    }
    if !reader.is_empty() {
        return Err(HelloError::Malformed);
    }
    Ok(protocols)
}

/// Takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        match self.take(2)? {
            [high, low] => Ok(u16::from_be_bytes([*high, *low])),
            _ => Err(HelloError::Malformed),
        }
    }

    fn vector8(&mut self) -> Result<&'a [u8], HelloError> {
        let length = self.take(1)?.first().copied().unwrap_or_default();
        self.take(usize::from(length))
    }

    fn vector16(&mut self) -> Result<&'a [u8], HelloError> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
mod tests;
