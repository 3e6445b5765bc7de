package smev

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// Files do not pass through pacer: a job names those that lie in the storage of the adapter, or of SMEV, already. So a request
// with a gigabyte of them is as small as one without, in Kafka and in each attempt.
const (
	maxAttachments     = 64 << 10 // bytes of the list
	maxAttachmentCount = 100
)

// attachmentsOf returns the list of attachments of a job, each as valid as can be told here; nil for none. An error is about
// the job, and quotes nothing of it.
func attachmentsOf[T any](s *Sink, job *delivery.Job, valid func(T) error) ([]T, error) {
	text, err := s.Now().texts.Make("attachments", render.NewJob(job, time.Now()), maxAttachments)
	if err != nil {
		return nil, err // which begins with the setting
	}
	list, err := listOf(text, valid)
	if err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	return list, nil
}

var errNoList = errors.New("not a list of attachments in JSON, with the keys of the mode")

func listOf[T any](text string, valid func(T) error) (list []T, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&list) != nil { // whose error quotes values
		return nil, errNoList
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errNoList
	}
	if len(list) > maxAttachmentCount {
		return nil, fmt.Errorf("%d of them; use at most %d", len(list), maxAttachmentCount)
	}
	for i, item := range list {
		if err := valid(item); err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return list, nil
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// fileProblem returns what is wrong with an attachment of the adapter's.
func fileProblem(f soap.File) error {
	switch {
	case f.FilePath == "" || strings.ContainsFunc(f.FilePath, control):
		return errors.New("no filePath, or one with control characters")
	case slices.Contains(strings.FieldsFunc(f.FilePath, func(r rune) bool { return r == '/' || r == '\\' }), ".."):
		return errors.New("filePath has a segment of two dots, which leads out of its directory")
	case f.ID != "" && !uuidPattern.MatchString(f.ID):
		return errors.New("id is not a UUID in lower case")
	case f.TransferMethod != "" && f.TransferMethod != soap.TransferMTOM && f.TransferMethod != soap.TransferReference:
		return errors.New("transferMethod is neither MTOM nor REFERENCE")
	case !inBase64(f.SignaturePKCS7):
		return errors.New("signaturePKCS7 is not base64")
	}
	return nil
}

// referenceProblem returns what is wrong with an attachment in SMEV's storage.
func referenceProblem(r soap.Reference) error {
	_, _, err := mime.ParseMediaType(r.MimeType)
	switch {
	case !uuidPattern.MatchString(r.UUID):
		return errors.New("uuid is not a UUID in lower case")
	case r.Hash == "" || !inBase64(r.Hash):
		return errors.New("hash is not base64")
	case err != nil || !strings.Contains(r.MimeType, "/"):
		return errors.New("mimeType is not a type such as application/pdf")
	case !inBase64(r.SignaturePKCS7):
		return errors.New("signaturePKCS7 is not base64")
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

func inBase64(text string) bool {
	_, err := base64.StdEncoding.DecodeString(text)
	return err == nil
}
