package soap

import "bytes"

// File is an attachment that lies in the storage of the adapter, which gives it to SMEV. Its names in JSON are the adapter's.
type File struct {
	ID             string `json:"id,omitempty"` // a UUID; "" for one of the adapter's
	FilePath       string `json:"filePath"`
	PassportID     string `json:"passportId,omitempty"`
	SignaturePKCS7 string `json:"signaturePKCS7,omitempty"` // in base64
	TransferMethod string `json:"transferMethod,omitempty"` // MTOM or REFERENCE; "" for what the adapter does by itself
	Reusable       bool   `json:"reusableAttachment,omitempty"`
}

// How the adapter gives a file to SMEV.
const (
	TransferMTOM      = "MTOM"      // within the message
	TransferReference = "REFERENCE" // through SMEV's storage of files
)

// Reference is an attachment that lies in SMEV's storage of files.
type Reference struct {
	UUID           string `json:"uuid"` // by which it lies there
	Hash           string `json:"hash"` // in base64
	MimeType       string `json:"mimeType"`
	SignaturePKCS7 string `json:"signaturePKCS7"` // in base64; "" for none
}

// writeFiles writes the attachments of a request to the adapter.
func writeFiles(b *bytes.Buffer, files []File) {
	if len(files) == 0 {
		return
	}
	b.WriteString("<a:AttachmentHeaderList>")
	for _, f := range files {
		b.WriteString("<a:AttachmentHeader>")
		element(b, "a:Id", f.ID)
		element(b, "a:filePath", f.FilePath)
		element(b, "a:passportId", f.PassportID)
		element(b, "a:SignaturePKCS7", f.SignaturePKCS7)
		element(b, "a:TransferMethod", f.TransferMethod)
		if f.Reusable {
			element(b, "a:ReusableAttachment", "true")
		}
		b.WriteString("</a:AttachmentHeader>")
	}
	b.WriteString("</a:AttachmentHeaderList>")
}

// writeReferences writes the attachments of a request to SMEV. They are within what is signed.
func writeReferences(b *bytes.Buffer, references []Reference) {
	if len(references) == 0 {
		return
	}
	b.WriteString("<b:RefAttachmentHeaderList>")
	for _, r := range references {
		b.WriteString("<b:RefAttachmentHeader>")
		element(b, "b:uuid", r.UUID)
		element(b, "b:Hash", r.Hash)
		element(b, "b:MimeType", r.MimeType)
		element(b, "b:SignaturePKCS7", r.SignaturePKCS7)
		b.WriteString("</b:RefAttachmentHeader>")
	}
	b.WriteString("</b:RefAttachmentHeaderList>")
}
