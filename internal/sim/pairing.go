package sim

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/google/uuid"
	"howett.net/plist"
)

// keyBits: devices and hosts use RSA of 2048 bits; libimobiledevice and go-ios both refuse ECDSA here.
const keyBits = 2048

// identities are what a lab's hosts and phones prove themselves with. Making a key takes a quarter of a second, and nothing here is
// secret: so the host's root and host certificates share one key, and all phones share another.
type identities struct {
	systemBUID, hostID string
	host, device       *rsa.PrivateKey
	rootCert, hostCert *x509.Certificate
}

func newIdentities(now time.Time) (*identities, error) {
	ids := &identities{systemBUID: upperUUID(), hostID: upperUUID()}
	made := make(chan error)
	go func() {
		var err error
		ids.device, err = rsa.GenerateKey(rand.Reader, keyBits)
		made <- err
	}()
	var err error
	ids.host, err = rsa.GenerateKey(rand.Reader, keyBits)
	if err := errors.Join(err, <-made); err != nil {
		return nil, err
	}
	if ids.rootCert, err = certify(now, &ids.host.PublicKey, nil, ids.host); err != nil {
		return nil, err
	}
	ids.hostCert, err = certify(now, &ids.host.PublicKey, ids.rootCert, ids.host)
	return ids, err
}

// certify signs public; without a parent the certificate signs itself, as a host's root does.
func certify(now time.Time, public *rsa.PublicKey, parent *x509.Certificate, signer *rsa.PrivateKey) (*x509.Certificate, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(0), Subject: pkix.Name{}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(10, 0, 0),
		SignatureAlgorithm: x509.SHA256WithRSA, BasicConstraintsValid: true, IsCA: parent == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment}
	if parent == nil {
		template.KeyUsage |= x509.KeyUsageCertSign
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func upperUUID() string { return strings.ToUpper(uuid.NewString()) }

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func keyPEM(k *rsa.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)})
}

// publicPEM is lockdown's DevicePublicKey, from which a pairing host makes the device's certificate.
func (ids *identities) publicPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&ids.device.PublicKey)})
}

// pairing is a host that a device trusts: what it must present in TLS, and what the device shows it.
type pairing struct {
	hostID  string
	trusted [][]byte // certificates (DER): libimobiledevice presents the root's, go-ios the host's
	device  tls.Certificate
}

// pairRecord makes the record of a phone that was paired with this host before the lab began: the host's file, and the device's own half.
func (ids *identities) pairRecord(now time.Time, wifiMAC string) (file []byte, p *pairing, err error) {
	device, err := certify(now, &ids.device.PublicKey, ids.rootCert, ids.host)
	if err != nil {
		return nil, nil, err
	}
	record := map[string]any{
		"HostID": ids.hostID, "SystemBUID": ids.systemBUID, "WiFiMACAddress": wifiMAC, "EscrowBag": escrowBag,
		"DeviceCertificate": certPEM(device),
		"HostCertificate":   certPEM(ids.hostCert), "HostPrivateKey": keyPEM(ids.host),
		"RootCertificate": certPEM(ids.rootCert), "RootPrivateKey": keyPEM(ids.host),
	}
	if file, err = plist.Marshal(record, plist.XMLFormat); err != nil {
		return nil, nil, err
	}
	p, err = ids.accept(record)
	return file, p, err
}

// escrowBag is opaque to hosts.
var escrowBag = []byte("simulated escrow bag, 32 bytes!!")

// accept is the device's half of Pair: it keeps the certificates that the host made.
func (ids *identities) accept(record map[string]any) (*pairing, error) {
	p := &pairing{hostID: str(record, "HostID")}
	if p.hostID == "" {
		return nil, errors.New("the pair record has no HostID")
	}
	for _, key := range []string{"HostCertificate", "RootCertificate"} {
		der, err := certDER(record, key)
		if err != nil {
			return nil, err
		}
		p.trusted = append(p.trusted, der)
	}
	der, err := certDER(record, "DeviceCertificate")
	if err != nil {
		return nil, err
	}
	p.device = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: ids.device}
	return p, nil
}

func certDER(record map[string]any, key string) ([]byte, error) {
	text, _ := record[key].([]byte)
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("the pair record's %s is no PEM", key)
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("the pair record's %s: %w", key, err)
	}
	return block.Bytes, nil
}

var errUntrustedHost = errors.New("the host's certificate is not the one that it was paired with")

// tls is the device's side of a session or service with this host: it wants to see the very certificate that it was paired with.
func (p *pairing) tls() *tls.Config {
	return &tls.Config{
		Certificates:           []tls.Certificate{p.device},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			for _, known := range p.trusted {
				if len(raw) > 0 && bytes.Equal(raw[0], known) {
					return nil
				}
			}
			return errUntrustedHost
		},
	}
}
