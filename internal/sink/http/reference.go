package http

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	fileReference = "file:"
	envReference  = "env:"
	// envPrefix begins the variables that destinations may refer to, so that none of them gets others of the daemon.
	envPrefix = "DESTINATION_"

	maxReferenced = 64 << 10 // bytes of a file
)

// isReference reports whether a value of a destination stands for a secret that is elsewhere.
func isReference(value string) bool {
	return strings.HasPrefix(value, fileReference) || strings.HasPrefix(value, envReference)
}

// owns reports whether a secret of the name is the destination's: the name is its id, or begins with it and / or __. So no
// row can refer to the secret of another. Kubernetes has all files of a volume once more in directories that begin with a dot.
func owns(id, name string) bool {
	end := len(name)
	for _, divider := range []string{"/", "__"} {
		if i := strings.Index(name, divider); i >= 0 {
			end = min(end, i)
		}
	}
	return id == name[:end] && !strings.HasPrefix(id, ".")
}

// variableOf returns the id as it is in the names of variables: in upper case, and _ for -. It is "" for an id that would have
// the variables of another.
func variableOf(id string) string {
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(id, "-") != id || strings.Contains(id, "--") {
		return ""
	}
	return strings.ToUpper(strings.ReplaceAll(id, "-", "_"))
}

// resolve returns the secret that a reference of a destination stands for: the content of a file in the directory, or a variable.
// Other values are what they are. No file outside of the directory can be had, by no name and no link, and no secret of another
// destination. The error quotes no content.
func resolve(dir, id, value string) (string, error) {
	if name, ok := strings.CutPrefix(value, envReference); ok {
		rest, named := strings.CutPrefix(name, envPrefix)
		switch own := variableOf(id); {
		case own == "":
			return "", fmt.Errorf("%s: only ids of a-z, 0-9 and single hyphens have variables; use a file", value)
		case !named || !owns(own, rest):
			return "", fmt.Errorf("%s is not a variable of destination %s; use %s%s, or a name that begins with %[3]s%[4]s__", value, id, envPrefix, own)
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
	if name = filepath.Clean(name); !filepath.IsLocal(name) {
		return "", errOutside(name)
	}
	if !owns(id, filepath.ToSlash(name)) {
		return "", fmt.Errorf("file %s is not one of destination %s; use %[2]s, or a name that begins with %[2]s/ or %[2]s__", name, id)
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
	b, err := root.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %s in the sink's secrets_dir", name)
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
