package http

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	fileReference = "file:"
	envReference  = "env:"
	// envPrefix begins the variables that destinations may refer to, so that whoever may write a destination does not get
	// others of the daemon.
	envPrefix = "DESTINATION_"

	maxReferenced = 64 << 10 // bytes of a file
)

// isReference reports whether a value of a destination stands for a secret that is elsewhere.
func isReference(value string) bool {
	return strings.HasPrefix(value, fileReference) || strings.HasPrefix(value, envReference)
}

// resolve returns the secret that a reference stands for: the content of a file in the directory, or a variable. Other values
// are what they are. No file outside of the directory can be had, by no name and no link. The error quotes no content.
func resolve(dir, value string) (string, error) {
	if name, ok := strings.CutPrefix(value, envReference); ok {
		if !strings.HasPrefix(name, envPrefix) {
			return "", fmt.Errorf("%s must name a variable that begins with %s", value, envPrefix)
		}
		secret, ok := os.LookupEnv(name)
		if !ok || secret == "" {
			return "", fmt.Errorf("this daemon has no variable %s", name)
		}
		return secret, nil
	}
	name, ok := strings.CutPrefix(value, fileReference)
	if !ok {
		return value, nil
	}
	if dir == "" {
		return "", errors.New("files can be referred to only if the sink has a secrets_dir")
	}
	if filepath.IsAbs(name) {
		inside, err := filepath.Rel(dir, name)
		if err != nil {
			return "", errOutside(name)
		}
		name = inside
	}
	if !filepath.IsLocal(name) {
		return "", errOutside(name)
	}
	return readIn(dir, name)
}

func errOutside(name string) error {
	return fmt.Errorf("file %s is not in the sink's secrets_dir", name)
}

func readIn(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("cannot open the sink's secrets_dir: %w", err)
	}
	defer root.Close()
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no file %s in the sink's secrets_dir", name)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the secret: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxReferenced+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read the secret: %w", err)
	case len(b) > maxReferenced:
		return "", fmt.Errorf("the secret in %s is longer than %d bytes", name, maxReferenced)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("the file %s is empty", name)
	}
	return secret, nil
}
