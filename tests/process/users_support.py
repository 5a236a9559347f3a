"""Logins for tests of users."""

import os

import packets
from packets import plain
from process_support import Case


class UsersCase(Case):
    """A test with a file of users."""

    def setUp(self):
        self.path = os.path.join(self.folder(), "users")

    def write(self, *lines):
        """Replaces the file."""
        with open(self.path, "w", encoding="ascii") as file:
            file.write("".join(line + "\n" for line in lines))
        os.chmod(self.path, 0o600)

    def text(self, server, user, password):
        """A text connection with the answer to its login."""
        connection = self.connection(server)
        words = ("%s %s" % (user, password)).encode()
        connection.send(b"set auth 0 0 %d\r\n%b\r\n" % (len(words), words))
        return connection, connection.line()

    def binary(self, server, user, password):
        """A binary connection with the status of its login."""
        connection = self.connection(server)
        return connection, packets.ask(connection, plain(user.encode(), password.encode())).status

    def counts(self, server, *login):
        """How many attempts were made, and how many failed."""
        connection, _ = self.text(server, *login)
        stats = connection.stats()
        return int(stats[b"auth_cmds"]) - 1, int(stats[b"auth_errors"])
