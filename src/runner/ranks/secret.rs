//! What ranks on other machines prove to each other before anything else: that they know one secret.
//!
//! ```text
//! rank -> 0   MAGIC, nonce
//! 0 -> rank   MAGIC, nonce
//! rank -> 0   length, hello, HMAC(secret, "rank" nonces hello)
//! 0 -> rank   1, HMAC(secret, "zero" nonces hello)    or    0, length, why not
//! ```
//!
//! Both nonces are in both proofs, so an old one is of no use, and so is one's own sent back. HMAC is that of
//! RFC 2104 with SHA-256. Afterwards nothing is encrypted or signed.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// First bytes of both sides; the number is that of this protocol.
const MAGIC: [u8; 16] = *b"sconce ranks  1\n";
/// Bytes of a nonce, of a proof, and the fewest of a secret.
const LENGTH: usize = 32;
/// Most bytes of a hello or of a reason.
const MOST: usize = 4 << 10;
const YES: u8 = 1;
const NO: u8 = 0;

type Bytes = [u8; LENGTH];

/// What all ranks know and nobody else.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its rank.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// Tells apart what all ranks must have in common: program, model, how it is computed.
    pub model: String,
}

/// Why two processes are no ranks of one model.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The connection is at fault, so another one may work.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The other end is something else.
    #[error("what answers there is no rank of sconce, or one of another version")]
    Stranger,
    /// The other end doesn't know the secret.
    #[error("the other end doesn't know the secret (--rank-secret-file)")]
    Impostor,
    /// Rank 0 doesn't want this rank.
    #[error("rank 0 refuses this rank: {0}")]
    Refused(String),
}

impl Secret {
    /// Takes what is in a file, without the line's end that editors leave.
    ///
    /// # Errors
    ///
    /// The file can't be read, or is too short to be a secret.
    pub fn read(file: &Path) -> io::Result<Self> {
        let mut secret = std::fs::read(file)?;
        while secret.last().is_some_and(u8::is_ascii_whitespace) {
            secret.pop();
        }
        Self::new(secret)
    }

    /// Takes these bytes.
    ///
    /// # Errors
    ///
    /// They are too few.
    pub fn new(secret: Vec<u8>) -> io::Result<Self> {
        if secret.len() < LENGTH {
            let told = format!("a secret of {} bytes, the least are {LENGTH}", secret.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        }
        Ok(Self(secret))
    }

    /// Joins rank 0 at the other end.
    pub fn join(&self, link: &mut (impl Read + Write), hello: &Hello) -> Result<(), JoinError> {
        let own = rand::random();
        greet(link, &own)?;
        let nonces = [own, greeting(link)?];
        let hello = postcard::to_stdvec(hello).map_err(io::Error::other)?;
        send_text(link, &hello)?;
        link.write_all(&self.mac("rank", nonces, &hello).finalize().into_bytes())?;
        link.flush()?;
        let [answer] = read(link)?;
        if answer == NO {
            return Err(JoinError::Refused(String::from_utf8_lossy(&text(link)?).into_owned()));
        }
        self.check("zero", nonces, &hello, read(link)?)
    }

    /// Takes the rank at the other end, if `judge` has nothing against it.
    pub fn welcome(
        &self,
        link: &mut (impl Read + Write),
        judge: impl FnOnce(&Hello) -> Result<(), String>,
    ) -> Result<Hello, JoinError> {
        let own = rand::random();
        let nonces = [greeting(link)?, own];
        greet(link, &own)?;
        let bytes = text(link)?;
        let refuse = |link: &mut dyn Write, reason: &str| {
            link.write_all(&[NO])?;
            send_text(link, reason.as_bytes())?;
            link.flush()
        };
        if let Err(error) = self.check("rank", nonces, &bytes, read(link)?) {
            refuse(link, "the secrets (--rank-secret-file) are not the same")?;
            return Err(error);
        }
        // Only now is anything of it looked at.
        let hello: Hello = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        if let Err(reason) = judge(&hello) {
            refuse(link, &reason)?;
            return Err(JoinError::Refused(reason));
        }
        link.write_all(&[YES])?;
        link.write_all(&self.mac("zero", nonces, &bytes).finalize().into_bytes())?;
        link.flush()?;
        Ok(hello)
    }

    fn mac(&self, who: &str, [rank, zero]: [Bytes; 2], hello: &[u8]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.chain_update(who).chain_update(rank).chain_update(zero).chain_update(hello)
    }

    fn check(
        &self,
        who: &str,
        nonces: [Bytes; 2],
        hello: &[u8],
        proof: Bytes,
    ) -> Result<(), JoinError> {
        self.mac(who, nonces, hello).verify_slice(&proof).map_err(|_| JoinError::Impostor)
    }
}

fn greet(link: &mut impl Write, nonce: &Bytes) -> io::Result<()> {
    link.write_all(&MAGIC)?;
    link.write_all(nonce)?;
    link.flush()
}

fn greeting(link: &mut impl Read) -> Result<Bytes, JoinError> {
    let magic: [u8; MAGIC.len()] = read(link)?;
    if magic == MAGIC { Ok(read(link)?) } else { Err(JoinError::Stranger) }
}

fn send_text(link: &mut (impl Write + ?Sized), text: &[u8]) -> io::Result<()> {
    let length = u16::try_from(text.len()).map_err(io::Error::other)?;
    link.write_all(&length.to_le_bytes())?;
    link.write_all(text)
}

fn text(link: &mut impl Read) -> Result<Vec<u8>, JoinError> {
    let length = usize::from(u16::from_le_bytes(read(link)?));
    if length > MOST {
        return Err(JoinError::Stranger);
    }
    let mut text = vec![0; length];
    link.read_exact(&mut text)?;
    Ok(text)
}

fn read<const N: usize>(link: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    link.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    fn secret(letter: u8) -> Secret {
        Secret::new(vec![letter; 40]).unwrap()
    }

    fn hello() -> Hello {
        Hello { rank: 1, size: 2, model: "this".to_owned() }
    }

    /// What rank 0 and the rank say of each other.
    fn meet(
        zero: Secret,
        rank: &Secret,
        hello: &Hello,
    ) -> (Result<Hello, JoinError>, Result<(), JoinError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let judge = |hello: &Hello| match &*hello.model {
            "this" => Ok(()),
            other => Err(format!("its model is {other}")),
        };
        let welcome = thread::spawn(move || zero.welcome(&mut listener.accept().unwrap().0, judge));
        let joined = rank.join(&mut TcpStream::connect(address).unwrap(), hello);
        (welcome.join().unwrap(), joined)
    }

    #[test]
    fn who_knows_the_secret_is_a_rank() {
        let (welcomed, joined) = meet(secret(1), &secret(1), &hello());
        joined.unwrap();
        assert_eq!(welcomed.unwrap(), hello());
    }

    #[test]
    fn who_does_not_know_it_is_told() {
        let (welcomed, joined) = meet(secret(1), &secret(2), &hello());
        assert!(matches!(welcomed, Err(JoinError::Impostor)));
        let told = joined.unwrap_err().to_string();
        assert!(told.contains("--rank-secret-file"), "{told}");
    }

    #[test]
    fn another_model_is_refused_with_the_reason() {
        let other = Hello { model: "another".to_owned(), ..hello() };
        let (_, joined) = meet(secret(1), &secret(1), &other);
        let told = joined.unwrap_err().to_string();
        assert!(told.contains("its model is another"), "{told}");
    }

    #[test]
    fn a_rank_finds_out_that_rank_0_does_not_know_the_secret() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It takes everybody and sends the rank's own proof back.
        let liar = thread::spawn(move || {
            let mut link = listener.accept().unwrap().0;
            let nonce = greeting(&mut link).unwrap();
            greet(&mut link, &nonce).unwrap();
            text(&mut link).unwrap();
            let proof: Bytes = read(&mut link).unwrap();
            link.write_all(&[YES]).unwrap();
            link.write_all(&proof).unwrap();
        });
        let joined = secret(1).join(&mut TcpStream::connect(address).unwrap(), &hello());
        assert!(matches!(joined, Err(JoinError::Impostor)));
        liar.join().unwrap();
    }

    #[test]
    fn a_proof_that_was_heard_before_is_worth_nothing() {
        // What a rank sent once, byte by byte.
        let mut heard = Vec::new();
        heard.extend(MAGIC);
        heard.extend([7; LENGTH]);
        let bytes = postcard::to_stdvec(&hello()).unwrap();
        send_text(&mut heard, &bytes).unwrap();
        let nonces = [[7; LENGTH], [8; LENGTH]];
        heard.extend(secret(1).mac("rank", nonces, &bytes).finalize().into_bytes());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let welcome =
            thread::spawn(move || secret(1).welcome(&mut listener.accept().unwrap().0, |_| Ok(())));
        let mut link = TcpStream::connect(address).unwrap();
        link.write_all(&heard).unwrap();
        assert!(matches!(welcome.join().unwrap(), Err(JoinError::Impostor)));
    }

    #[test]
    fn something_else_is_no_rank() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let welcome =
            thread::spawn(move || secret(1).welcome(&mut listener.accept().unwrap().0, |_| Ok(())));
        let mut link = TcpStream::connect(address).unwrap();
        link.write_all(b"GET / HTTP/1.1\r\nhost: there\r\n\r\n").unwrap();
        assert!(matches!(welcome.join().unwrap(), Err(JoinError::Stranger)));
    }

    #[test]
    fn a_short_secret_is_none() {
        let told = Secret::new(vec![1; 31]).unwrap_err().to_string();
        assert!(told.contains("31 bytes, the least are 32"), "{told}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [&[b'x'; 32][..], b"\n"].concat()).unwrap();
        assert_eq!(Secret::read(file.path()).unwrap().0, [b'x'; 32]);
    }
}
