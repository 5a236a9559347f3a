"""Certificates for tests, made by the program `openssl`, and clients that use them."""

import os
import shutil
import ssl
import subprocess

DAYS = "30"


def has_openssl():
    """Whether certificates can be made here."""
    return shutil.which("openssl") is not None


def openssl(*arguments):
    """Runs the program; raises CalledProcessError with what it said."""
    subprocess.run(("openssl",) + arguments, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                   stderr=subprocess.STDOUT)


class Certificates:
    """An authority, and certificates that it signed, in files of a folder."""

    def __init__(self, folder, name="one"):
        self.folder = folder
        self.authority = self.path(name + "-ca.pem")
        self.authority_key = self.path(name + "-ca.key")
        self.make_key(self.authority_key)
        openssl("req", "-x509", "-new", "-key", self.authority_key, "-out", self.authority, "-days", DAYS,
                "-subj", "/CN=%s authority" % name)

    def path(self, name):
        """A file of the folder."""
        return os.path.join(self.folder, name)

    @staticmethod
    def make_key(path, kind="ec"):
        """A new private key: `ec`, or the number of bits of an RSA key."""
        if kind == "ec":
            openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
        else:
            openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:%s" % kind, "-out", path)

    def sign(self, name, kind="ec", days=DAYS):
        """A certificate for `name` and localhost, for so many days; returns the files of certificate and key."""
        certificate, key, request = (self.path(name + end) for end in (".pem", ".key", ".csr"))
        extensions = self.path(name + ".ext")
        with open(extensions, "w", encoding="ascii") as file:
            file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        self.make_key(key, kind)
        openssl("req", "-new", "-key", key, "-out", request, "-subj", "/CN=" + name)
        openssl("x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", self.authority_key,
                "-CAcreateserial", "-out", certificate, "-days", days, "-extfile", extensions)
        return certificate, key

    def client(self, identity=None, version=None):
        """What a client needs to trust the authority; `identity` is its own certificate and key."""
        context = ssl.create_default_context(cafile=self.authority)
        if identity:
            context.load_cert_chain(*identity)
        if version:
            context.minimum_version = context.maximum_version = version
        return context


def flags(certificate, key):
    """The server's flags."""
    return ["-Z", "-o", "ssl_chain_cert=%s,ssl_key=%s" % (certificate, key)]
