package soap

// File is an attachment that lies in the storage of the adapter, which gives it to SMEV. Its names are the adapter's.
type File struct {
	ID             string `json:"id,omitempty" xml:"a:Id,omitempty"` // a UUID; "" for one of the adapter's
	FilePath       string `json:"filePath" xml:"a:filePath,omitempty"`
	PassportID     string `json:"passportId,omitempty" xml:"a:passportId,omitempty"`
	SignaturePKCS7 string `json:"signaturePKCS7,omitempty" xml:"a:SignaturePKCS7,omitempty"` // in base64
	TransferMethod string `json:"transferMethod,omitempty" xml:"a:TransferMethod,omitempty"` // MTOM or REFERENCE; "" for the adapter's choice
	Reusable       bool   `json:"reusableAttachment,omitempty" xml:"a:ReusableAttachment,omitempty"`
}

// How the adapter gives a file to SMEV.
const (
	TransferMTOM      = "MTOM"      // within the message
	TransferReference = "REFERENCE" // through SMEV's storage of files
)

// Reference is an attachment that lies in SMEV's storage of files.
type Reference struct {
	UUID           string `json:"uuid" xml:"b:uuid"` // by which it lies there
	Hash           string `json:"hash" xml:"b:Hash"` // in base64
	MimeType       string `json:"mimeType" xml:"b:MimeType"`
	SignaturePKCS7 string `json:"signaturePKCS7" xml:"b:SignaturePKCS7,omitempty"` // in base64; "" for none
}
